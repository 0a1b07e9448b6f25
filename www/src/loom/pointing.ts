/** Pointing at the loom, and choosing on it, by mouse and by keys. */
import { byId } from "../dom.ts";
import type { Drawing, Place } from "./drawing.ts";
import type { Weave } from "./weave.ts";

/** What is chosen on the loom. */
export interface Choice {
  /** The letter, by its place. */
  at(): number;
  choose(place: Place): void;
  /** A place in a line. */
  brief(woven: Weave, place: Place): string;
}

export function listen(drawing: Drawing, { at: chosen, choose, brief }: Choice): void {
  const { canvas } = drawing;
  const note = byId("loom-note", HTMLElement);
  const at = ({ offsetX, offsetY }: MouseEvent) => drawing.placeAt(offsetX, offsetY);
  const point = (place: Place | undefined) => {
    drawing.pointed = place;
    drawing.refresh();
    const { weave: woven } = drawing;
    note.textContent = woven && place ? brief(woven, place) : "";
  };
  canvas.addEventListener("pointermove", (event) => {
    if (event.pointerType !== "touch") point(at(event));
  });
  canvas.addEventListener("pointerleave", () => point(undefined));
  canvas.addEventListener("click", (event) => {
    const place = at(event);
    if (!place) return;
    choose(place);
    note.textContent = brief(drawing.weave!, place);
  });
  canvas.addEventListener("keydown", (event) => {
    const woven = drawing.weave;
    const last = (woven?.tokens.length ?? 0) - 1;
    const from = chosen();
    const to = { ArrowLeft: from - 1, ArrowRight: from + 1, Home: 0, End: last }[event.key];
    if (!woven || to === undefined) return;
    event.preventDefault();
    choose({ at: Math.max(0, Math.min(last, to)) });
  });
}
