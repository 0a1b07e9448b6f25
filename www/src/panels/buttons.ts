/** The buttons that start and end a run, and what the page says that it does. */
import { byId } from "../dom.ts";

export type State = "idle" | "loading" | "training" | "paused" | "stopped" | "error";

/** What there is to be pressed for. */
export interface There {
  /** Whether there is a GPU. */
  readonly gpu: boolean;
  /** Whether the page has a run. */
  readonly run: boolean;
}

const start = byId("start", HTMLButtonElement);
const pause = byId("pause", HTMLButtonElement);
const stop = byId("stop", HTMLButtonElement);

export const state = (): State => document.body.dataset["state"] as State;
export const busy = (): boolean => state() === "training" || state() === "loading";

/** Says what becomes of the run, in `data-state` of the body too, and which buttons do something now. */
export function showState(next: State, there: There): void {
  document.body.dataset["state"] = next;
  start.disabled = !there.gpu || busy();
  start.textContent = next === "paused" ? "Resume" : "Start";
  pause.disabled = next !== "training" && next !== "paused";
  pause.setAttribute("aria-pressed", String(next === "paused"));
  stop.disabled = next !== "training" && next !== "paused";
  byId("import", HTMLButtonElement).disabled = !there.gpu || busy();
  byId("code", HTMLButtonElement).disabled = !there.run;
}
