/**
 * Which layers of the loom a picture paints anew. 17,000 threads keep the page's own thread busy for most of a picture's
 * time, so that a run waits for it, and for 150 ms where no GPU draws the canvas. The layers then take turns.
 */

/** Threads that a picture paints on any device. */
const FEW = 5000;
/** Milliseconds between two pictures of which the later one was late, and of which it was not. */
const [LATE, PROMPT] = [40, 25];
/** So many late pictures, less those that were not, make a picture paint fewer layers. */
const TOO_MANY = 3;
/** So many pictures in a row that were not late let it paint more again. It doubles with each time that they were too many. */
const PATIENCE = 20;

export class LayerTurns {
  readonly #layers: number;
  /** n, for the number of threads. */
  #least = 1;
  /** n, because pictures were late. */
  #parts = 1;
  #turn = 0;
  /** Pictures until all layers are as they are to be. */
  #behind = 0;
  #late = 0;
  #prompt = 0;
  #patience = PATIENCE;

  constructor(layers: number) {
    this.#layers = layers;
  }

  /** The threads have changed, and are so many now. */
  changed(threads: number): void {
    this.#least = Math.max(1, Math.min(this.#layers, Math.ceil(threads / FEW)));
    this.#behind = this.#every;
  }

  /** Each layer is painted in every n-th picture. */
  get #every(): number {
    return Math.max(this.#least, this.#parts);
  }

  /** Whether each picture paints all layers. */
  get all(): boolean {
    return this.#every === 1;
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
    const every = this.#every;
    this.#behind = Math.max(0, this.#behind - 1);
    this.#turn = (this.#turn + 1) % every;
    const layers: number[] = [];
    for (let layer = this.#turn; layer < this.#layers; layer += every) layers.push(layer);
    return layers;
  }

  #learn(gap: number): void {
    this.#late = Math.max(0, Math.min(TOO_MANY, this.#late + (gap > LATE ? 1 : -1)));
    this.#prompt = gap < PROMPT ? this.#prompt + 1 : 0;
    const every = this.#every;
    if (this.#late === TOO_MANY && every < this.#layers) {
      this.#divide(Math.min(this.#layers, every * 2));
      this.#patience *= 2;
    } else if (this.#prompt >= this.#patience && this.#parts > 1) {
      this.#divide(Math.ceil(this.#parts / 2));
    }
  }

  #divide(parts: number): void {
    this.#parts = parts;
    this.#behind = this.#every;
    [this.#late, this.#prompt] = [0, 0];
  }
}
