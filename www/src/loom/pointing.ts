/** Pointing at the loom, and choosing on it, by mouse and by keys. */
import { byId } from "../dom.ts";
import type { Drawing, Place } from "./drawing.ts";
import { LEAST } from "./painting.ts";
import { headAt } from "./pass.ts";
import type { Weave } from "./weave.ts";

/** What is chosen on the loom. */
export interface Choice {
  /** Where keys begin. */
  chosen(): Place | undefined;
  choose(place: Place): void;
  /** Cuts a head, or puts it back. */
  cut(head: number): void;
  /** A place in a line. */
  brief(woven: Weave, place: Place): string;
}

/** A letter's strongest thread of a head, by the head's place among those of all layers. */
function strongest({ shape: { heads }, shares }: Weave, at: number, one: number): Place {
  const [layer, head] = [Math.floor(one / heads), one % heads];
  const row = shares[layer]![head]![at]!;
  return { at, layer, head, from: row.indexOf(Math.max(...row)) };
}

/**
 * Where a key leads: along the letters, from a letter up through its heads, and along a head's threads.
 *
 * @returns a place, or nothing where the key means nothing.
 */
export function placeAfterKey(
  { key }: KeyboardEvent,
  weave: Weave,
  place: Place,
): Place | undefined {
  const { tokens, shape, shares } = weave;
  const last = tokens.length - 1;
  const { at, layer, head, from } = place;
  const on = layer === undefined ? -1 : headAt(shape.heads, layer, head!);
  const way = { ArrowLeft: -1, ArrowRight: 1 }[key];
  if (way && on >= 0) {
    const row = shares[layer!]![head!]![at]!;
    for (let to = from! + way; to in row; to += way) {
      if (row[to]! >= LEAST) return { ...place, from: to };
    }
    return place;
  }
  const to = way ? at + way : { Home: 0, End: last }[key];
  if (to !== undefined) return { at: Math.max(0, Math.min(last, to)) };
  const next = { ArrowUp: on + 1, ArrowDown: on - 1 }[key];
  if (next === undefined) return undefined;
  if (next < 0) return { at };
  return strongest(weave, at, Math.min(next, shape.layers * shape.heads - 1));
}

/** Keys that a browser or a screen reader has a use of its own for. */
export const modified = ({ altKey, ctrlKey, metaKey }: KeyboardEvent): boolean =>
  altKey || ctrlKey || metaKey;

export function listen(drawing: Drawing, { chosen, choose, cut, brief }: Choice): void {
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
    if (!woven || modified(event)) return;
    const place = chosen() ?? { at: 0 };
    const { layer, head } = place;
    const cuts = (event.key === "Enter" || event.key === " ") && layer !== undefined;
    const to = cuts ? place : placeAfterKey(event, woven, place);
    if (!to) return;
    event.preventDefault();
    if (cuts) cut(headAt(woven.shape.heads, layer, head!));
    choose(to);
    note.textContent = brief(woven, to);
  });
  canvas.addEventListener("blur", () => {
    note.textContent = "";
  });
}
