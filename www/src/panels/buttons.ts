/** The buttons that start and end a run, and what the page says that it does. */
import { byId } from "../dom.ts";
import type { State } from "../session.ts";

/** What there is to be pressed for. */
export interface There {
  /** Whether a run may begin. */
  readonly ready: boolean;
  /** Whether the page has a run. */
  readonly run: boolean;
  /** Whether its training is over, and is scored and kept. */
  readonly ending: boolean;
}

const start = byId("start", HTMLButtonElement);
const pause = byId("pause", HTMLButtonElement);
const stop = byId("stop", HTMLButtonElement);
const status = byId("status", HTMLElement);

/** Says what becomes of the run, in `data-state` and `data-ending` of the body too, and which buttons do something now. */
export function showState(next: State, { ready, run, ending }: There): void {
  const focused = document.activeElement;
  document.body.dataset["state"] = next;
  document.body.toggleAttribute("data-ending", ending);
  start.disabled = !ready;
  start.textContent = next === "paused" ? "Resume" : "Start";
  pause.disabled = next !== "training";
  stop.disabled = next !== "training" && next !== "paused";
  byId("import", HTMLButtonElement).disabled = !ready;
  byId("code", HTMLButtonElement).disabled = !run;
  keepFocus(focused, ["loading", "training", "paused"].includes(next));
}

/**
 * Who has pressed a button that does nothing any more, or Enter in a field, finds the one that follows, or what is said
 * meanwhile.
 *
 * @param closed - whether the form's fields are disabled, too.
 */
function keepFocus(focused: Element | null, closed: boolean): void {
  const own = focused === start || focused === pause || focused === stop;
  const field = closed && focused?.matches("#setup :is(input, select, textarea)");
  if (own ? !(focused as HTMLButtonElement).disabled : focused !== status && !field) return;
  const next = [pause, start].find((button) => !button.disabled);
  (next ?? status).focus({ preventScroll: true });
}
