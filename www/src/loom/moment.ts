/** What the stage shows at a moment: all that pictures, tables, links and lessons need of it. */
import type { Marks } from "./ask.ts";
import type { Kit, Threads } from "./pen.ts";
import type { Snapshot, Track } from "./track.ts";

export interface Moment {
  readonly track: Track;
  readonly snapshot: Snapshot;
  /** The step, with its fraction. */
  readonly at: number;
  /** Heads that are cut. */
  readonly off: ReadonlySet<number>;
  readonly ghost: Track | undefined;
  readonly title: string;
  readonly caption: string;
  /** What the squares are of. */
  readonly squares: string;
  /** How the questions went, as far as they were asked. */
  readonly marks: Marks | undefined;
  /** The digits' map, where there is one. */
  readonly map: HTMLCanvasElement | undefined;
  /** The text that is woven. */
  readonly word: string;
  /** The letter that the visitor has chosen, by its place on the loom. */
  readonly chosen: number | undefined;
  /** Draws the loom elsewhere. */
  copy<Path extends Threads>(kit: Kit<Path>, width: number, height: number): void;
}
