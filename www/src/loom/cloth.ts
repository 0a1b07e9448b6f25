/** The text on the loom: a problem with room for its answer, or the part of a text before the cursor. */
import { tasks } from "../tasks/index.ts";
import { END } from "../tasks/task.ts";
import type { Track } from "./track.ts";
import { LETTERS } from "./weave.ts";

/** Letters that a model of texts adds, and those before them, on a wide screen and on a phone. */
const [WIDE, PHONE] = [
  { adds: 14, before: LETTERS - 14 },
  { adds: 6, before: 8 },
];
/** The most letters of an answer to what is no problem of the task. */
const ADDS = 8;

const utf8 = new TextEncoder();

export interface Laid {
  readonly given: Uint8Array;
  readonly adds: number;
  /** Letters of the right answer, where there is one. */
  readonly wanted: readonly number[] | undefined;
  readonly answers: boolean;
}

/**
 * @param text - of the field.
 * @param cursor - its place in the text.
 * @param narrow - whether the screen is.
 */
export function lay(track: Track, text: string, cursor: number, narrow: boolean): Laid {
  const task = track.task && tasks[track.task];
  const shown = text === "" ? track.example : text;
  if (task) {
    const problem = shown.slice(0, LETTERS / 2);
    const right = task.solve(problem);
    const given = utf8.encode(problem + task.mark).slice(0, LETTERS - ADDS);
    const wanted = right === undefined ? undefined : [...utf8.encode(right), END];
    return { given, adds: right?.length ?? ADDS, wanted, answers: true };
  }
  const { adds, before } = narrow ? PHONE : WIDE;
  const end = text === "" || cursor === 0 ? shown.length : cursor;
  const given = utf8.encode(shown.slice(0, end)).slice(-before);
  return { given, adds, wanted: undefined, answers: false };
}
