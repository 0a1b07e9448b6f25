/** What is said beside the loom: of the weights that are on it, or of those before, which it then names. */
import { byId, whole } from "../dom.ts";
import { rightSaid } from "./asker.ts";
import type { Squares } from "./squares.ts";
import { captionOf, type Told, titleOf } from "./story.ts";
import type { Snapshot, Track } from "./track.ts";

/** What is on the loom. */
export interface Picture {
  readonly track: Track;
  readonly snapshot: Snapshot;
  /** Heads that are cut. */
  readonly off: ReadonlySet<number>;
}

/** What the words beside a picture are made of, besides the picture. */
export interface Beside extends Pick<Told, "asked" | "live"> {
  readonly ghost: Track | undefined;
  /** Seconds in which a run is shown. */
  readonly seconds: number;
}

/** Shows title, sentence and count. */
export function showWords(
  { track, snapshot, off }: Picture,
  squares: Squares,
  { asked, live, ghost, seconds }: Beside,
): void {
  const { step } = snapshot;
  byId("sentence", HTMLElement).textContent = titleOf(track);
  const grey = track.recorded ? track : ghost;
  byId("time-key", HTMLElement).textContent = grey
    ? `Grey: ${grey.recorded ? grey.about : "the run before"}.`
    : "";
  const told = { shown: track, live, at: step, cut: off.size, show: seconds, asked };
  byId("story", HTMLElement).textContent = captionOf(told);
  const of = asked ? ` at step ${whole(asked.snapshot.step)}` : "";
  const count = `${rightSaid(asked?.marks)}${of}`;
  byId("squares-count", HTMLElement).textContent = off.size > 0 ? `${count}, threads cut` : count;
  squares.label = `${count}, of ${track.questions.length}. Arrow keys go through them; Enter weaves one.`;
  const stage = byId("loom", HTMLElement);
  stage.dataset["source"] = track.recorded ? "recording" : "live";
  stage.dataset["step"] = String(step);
}
