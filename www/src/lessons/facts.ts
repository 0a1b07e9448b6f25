/** What a lesson needs to know of what the stage shows. */

import { type Marks, rightOf } from "../loom/ask.ts";
import type { Moment } from "../loom/moment.ts";
import type { Facts } from "./lessons.ts";

const count = (marks: Marks | undefined): number | undefined => marks && rightOf(marks);

/**
 * @param moment - what is shown; undefined before there is something.
 * @param trains - whether the pupil's own model can be trained.
 */
export function factsOf(moment: Moment | undefined, trains: boolean): Facts {
  const { track, snapshot, off, ghost, marks, word = "", chosen } = moment ?? {};
  return {
    step: snapshot?.step ?? 0,
    newest: Math.max(0, track?.newest ?? 0),
    right: count(marks),
    of: track?.questions.length ?? 0,
    cut: off?.size ?? 0,
    word,
    chosen,
    ended: track?.ended ?? false,
    recorded: track?.recorded ?? true,
    trains,
    loss: track?.losses.at(-1)?.[1],
    validations: track?.validations ?? [],
    ghost: count(ghost?.snapshots.at(-1)?.marks.get("")),
  };
}
