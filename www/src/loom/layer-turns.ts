/**
 * Which layers of the loom a picture paints anew. Where no GPU draws the canvas, the browser draws it on the page's own
 * thread, and 17,000 threads take it 150 ms. The layers then take turns.
 */

/** Threads that any device draws within one picture. */
const FEW = 5000;
/** Milliseconds between two pictures of which the later one was late, and of which it was not. */
const [LATE, PROMPT] = [40, 25];
/** So many late pictures, less those that were not, make the layers take turns. */
const TOO_MANY = 3;
/** So many pictures in a row that were not late let more layers be painted in each. It doubles with each mistake. */
const PATIENCE = 20;

export class LayerTurns {
  readonly #layers: number;
  /** Every so many pictures a layer is painted. */
  #parts: number;
  #turn = 0;
  /** Pictures until all layers are as they are to be. */
  #behind: number;
  #late = 0;
  #prompt = 0;
  #patience = PATIENCE;

  /** @param threads - as many as there may be. */
  constructor(layers: number, threads: number) {
    this.#layers = layers;
    this.#parts = Math.min(layers, Math.ceil(threads / FEW));
    this.#behind = this.#parts;
  }

  /** The threads have changed. */
  changed(): void {
    this.#behind = this.#parts;
  }

  /** Whether each picture paints all layers. */
  get all(): boolean {
    return this.#parts === 1;
  }

  /** Whether a layer still shows what was. */
  get behind(): boolean {
    return this.#behind > 0;
  }

  /**
   * The layers that the next picture paints.
   *
   * @param gap - milliseconds since the picture before, where that one asked for this one.
   */
  next(gap: number | undefined): number[] {
    if (gap !== undefined) this.#learn(gap);
    this.#behind = Math.max(0, this.#behind - 1);
    this.#turn = (this.#turn + 1) % this.#parts;
    const all = Array.from({ length: this.#layers }, (_, layer) => layer);
    return all.filter((layer) => layer % this.#parts === this.#turn);
  }

  #learn(gap: number): void {
    const late = gap > LATE;
    this.#late = Math.max(0, this.#late + (late ? 1 : -1));
    this.#prompt = gap < PROMPT ? this.#prompt + 1 : 0;
    if (this.#late === TOO_MANY && this.#parts < this.#layers) {
      this.#divide(Math.min(this.#layers, this.#parts * 2));
      this.#patience *= 2;
    } else if (this.#prompt === this.#patience && this.#parts > 1) {
      this.#divide(Math.ceil(this.#parts / 2));
    }
  }

  #divide(parts: number): void {
    [this.#parts, this.#behind] = [parts, parts];
    [this.#late, this.#prompt] = [0, 0];
  }
}
