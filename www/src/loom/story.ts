/** The sentence above the loom, and what is said below it. */
import { whole } from "../dom.ts";
import type { TaskName } from "../tasks/index.ts";
import { type Marks, rightOf } from "./ask.ts";
import type { Snapshot, Track } from "./track.ts";

/** What a task's questions are called. */
export const NOUNS: { readonly [task in TaskName]: string } = {
  reverse: "words",
  sort: "rows of digits",
  add: "sums",
  brackets: "open brackets",
};

const TITLES: { readonly [task in TaskName]: string } = {
  reverse: "Nobody told it how to reverse a word.",
  sort: "Nobody told it which digit is larger.",
  add: "Nobody told it how to add.",
  brackets: "Nobody told it which brackets belong together.",
};

export const titleOf = ({ task }: Track): string =>
  task ? TITLES[task] : "Nobody told it what a word is.";

export interface Told {
  readonly shown: Track;
  readonly live: Track | undefined;
  /** The step whose weights are shown. */
  readonly at: number;
  /** How the model did that was asked last, at that step or before. */
  readonly asked: { readonly snapshot: Snapshot; readonly marks: Marks } | undefined;
  /** How many heads are cut. */
  readonly cut: number;
  /** Seconds in which a run is shown. */
  readonly show: number;
}

/** How it does, in a sentence. */
function score({ shown, asked, at, cut }: Told): string {
  const { length } = shown.questions;
  const what = shown.task ? NOUNS[shown.task] : "letters of a text";
  if (!asked) return `It is being asked ${length} ${what} that it has never seen.`;
  const { snapshot, marks } = asked;
  const { step } = snapshot;
  const steps = `${whole(step)} ${step === 1 ? "step" : "steps"}`;
  const when = step === 0 ? "before its first step" : `after ${steps}`;
  const does = shown.task ? ["answers", "answered"] : ["guesses", "guessed"];
  // Of weights before those that are shown the sentence says which, and what becomes of these.
  const now = step === at;
  const did = `${does[now ? 0 : 1]} ${rightOf(marks)} of ${length} ${what}`;
  const end = now ? "." : `; step ${whole(at)} is being asked.`;
  if (cut === 0)
    return `${when[0]!.toUpperCase()}${when.slice(1)} it ${did} it has never seen${end}`;
  return `With ${cut} of its heads cut it ${did}${now ? "" : ` ${when}`}${end}`;
}

export function captionOf(told: Told): string {
  const { shown, live, at, show } = told;
  const said = score(told);
  if (shown.recorded) {
    const own =
      live && live.newest >= 0
        ? ` Your own model is at step ${whole(live.newest)}.`
        : document.body.dataset["gpu"] === "none"
          ? " This browser offers no GPU to train on; all of it can be tried."
          : document.body.dataset["state"] === "loading"
            ? " Your own model begins in a moment."
            : "";
    const [first = ""] = said;
    return `Recorded earlier: ${first.toLowerCase()}${said.slice(1)}${own}`;
  }
  const seconds = shown.milliseconds / 1000;
  if (shown.ended && seconds > 0 && seconds < show * 0.7) {
    return `${said} Trained in ${seconds.toFixed(1)} s on your machine, shown ${Math.round(show / seconds)} × slower.`;
  }
  if (shown.ended && at >= shown.newest && told.asked?.snapshot.step === at) {
    return `${whole(at)} steps ago this model was noise. ${said.replace(/^After .*? steps? it/, "It now")} Type one, or drag the line below back in time.`;
  }
  if (shown.ended) return `${said} Its training is over.`;
  const { state, ending } = document.body.dataset;
  const learns = state === "training" || ending !== undefined;
  return `${said} ${learns ? "It learns now, in this tab." : "It is paused."}`;
}
