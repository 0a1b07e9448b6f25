/** Time on the stage: which step of a run is shown, and how it goes on. */
import type { Track } from "./track.ts";

/** Seconds in which a run is shown at the least. */
export const SHOW = 12;
/** The first steps are shown slower: time goes with this power. */
const SLOW_START = 1.7;
/** Milliseconds between two moves of the handle. */
const TICK = 50;
/** Milliseconds that one of them stands for at most. */
const LONGEST = 500;
/** Milliseconds after which a run that trains is shown at its next snapshot, although few are left. */
const EVERY = 110;

export class Player {
  track: Track | undefined;
  /** The step that is shown, with its fraction. */
  at = 0;
  speed = 1;
  /** The run on the second loom. */
  #beside: Track | undefined;
  #playing = true;
  /** When the present run came to its end. */
  #endedAt: number | undefined;
  #ticked = Date.now();
  /** When it came to the snapshot that is shown. */
  #came = 0;

  /**
   * @param tick - is called all the time; says whether anything has moved.
   * @param changed - hears that it has begun to play, or has ended.
   */
  constructor(tick: (moved: boolean) => void, changed: () => void) {
    this.#changed = changed;
    setInterval(() => {
      if (!document.hidden) tick(this.#advance());
    }, TICK);
  }
  readonly #changed: () => void;

  get playing(): boolean {
    return this.#playing;
  }

  /** Shows a run from a step on. */
  go(track: Track, at: number): void {
    this.track = track;
    this.at = at;
    this.#playing = true;
    this.#endedAt = undefined;
  }

  /** Shows another run beside it on a second loom, or none any more. */
  set beside(track: Track | undefined) {
    this.#beside = track;
    if (this.track?.ended) this.at = Math.min(this.at, this.#last);
  }

  /** Stops at a step. */
  stop(at: number): void {
    const { track } = this;
    // What is left of a recording is on its way.
    this.at = Math.min(at, Math.max(0, track?.recorded ? track.steps : 0, this.#last));
    this.#playing = false;
    this.#changed();
  }

  /** Plays, from the beginning if it was at the end; or stops. */
  toggle(): void {
    this.#playing = !this.#playing;
    if (this.#playing && this.#atEnd) this.at = 0;
    this.#endedAt = undefined;
    this.#changed();
  }

  /** Milliseconds since the run came to its end. */
  get rested(): number {
    return this.#endedAt === undefined ? 0 : performance.now() - this.#endedAt;
  }

  /** The step at which it will be after some milliseconds, if there are weights up to there. */
  after(milliseconds: number): number {
    const { track } = this;
    if (!track || !this.#playing) return this.at;
    const steps = Math.max(track.steps, this.#last);
    const way = (this.at / steps) ** (1 / SLOW_START) + (milliseconds / 1000 / SHOW) * this.speed;
    return Math.max(this.at, Math.min(this.#last, steps * way ** SLOW_START));
  }

  /** The last step that can be shown. Beside a longer run one that has ended stays at its end. */
  get #last(): number {
    const { track } = this;
    return Math.max(track?.newest ?? 0, (track?.ended && this.#beside?.newest) || 0);
  }

  /** Whether nothing more can come. */
  get #atEnd(): boolean {
    const { track } = this;
    return (
      track !== undefined && this.at >= this.#last && track.newest >= track.steps && track.ended
    );
  }

  #advance(): boolean {
    const { track } = this;
    const elapsed = Math.min(LONGEST, Date.now() - this.#ticked);
    this.#ticked = Date.now();
    if (!track || !this.#playing) return false;
    const last = track.ended ? this.#last : track.ready(this.at, this.#ticked - this.#came > EVERY);
    if (this.at < last) {
      const before = track.upTo(this.at);
      this.at = Math.min(last, Math.max(this.at + 0.02, this.after(elapsed)));
      if (track.upTo(this.at) !== before) this.#came = this.#ticked;
      return true;
    }
    if (this.#atEnd) {
      this.#endedAt = performance.now();
      this.#playing = false;
      this.#changed();
    }
    return false;
  }
}
