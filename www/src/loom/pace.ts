/**
 * What is shown while a run plays, and what is asked meanwhile. Threads, sentence and squares are to be of the same
 * weights. Questions take longer than threads, so they are put to the weights that will be shown once they are answered.
 */
import type { Snapshot, Track } from "./track.ts";

/** Milliseconds after which threads move on although the questions to their weights are not answered yet. */
const PATIENCE = 180;
/** The same where answers take longer than that in any case. */
const IMPATIENCE = 140;

/** Where a run stands. */
export interface Stand {
  readonly track: Track;
  /** Of the heads that are cut, as `keyOf` has it. */
  readonly key: string;
  /** The step of the handle, with its fraction. */
  readonly at: number;
  readonly playing: boolean;
  /** Milliseconds that the last answers took. */
  readonly took?: number;
}

/**
 * The weights to show: the last ones up to the handle. While the run plays, those that were asked come first.
 *
 * @param shown - what is shown now.
 * @param still - milliseconds since that was another one.
 */
export function toShow(
  { track, key, at, playing, took = 0 }: Stand,
  shown: Snapshot | undefined,
  still: number,
): Snapshot | undefined {
  const last = track.upTo(at);
  const waits = playing && shown && last && shown.step < last.step && !last.marks.has(key);
  if (!waits) return last;
  const asked = track.snapshots.findLast(
    ({ step, marks }) => step > shown.step && step <= at && marks.has(key),
  );
  const patience = took > 2 * PATIENCE ? IMPATIENCE : PATIENCE;
  return asked ?? (still < patience ? shown : last);
}

/**
 * The step of a second loom: that of the weights on the first. Where these are the last of their run, that of the handle,
 * which goes on beside a longer run.
 */
export function besideAt({ ended, newest }: Track, { step }: Snapshot, at: number): number {
  return ended && step === newest ? Math.max(step, at) : step;
}

/**
 * The weights to ask: those of the handle. While the run plays, those where it will be when the answers are there, or
 * else the next ones.
 *
 * @param ahead - the step at which the handle will be by then.
 */
export function toAsk({ track, key, at, playing }: Stand, ahead: number): Snapshot | undefined {
  const asked = ({ marks }: Snapshot) => marks.has(key);
  const wanted = track.upTo(playing ? ahead : at);
  if (!wanted || !asked(wanted)) return wanted;
  return playing ? track.snapshots.find((one) => one.step > wanted.step && !asked(one)) : undefined;
}
