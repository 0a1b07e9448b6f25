/** The loom of a real model: some of its layers over a chat. */
import { byId } from "../dom.ts";
import { Drawing } from "../loom/drawing.ts";
import type { Place } from "../loom/painting.ts";
import { modified, placeAfterKey } from "../loom/pointing.ts";
import type { Weave } from "../loom/weave.ts";
import { shapeOf } from "../shape.ts";
import type { Chat } from "../tune/chats.ts";
import type { Tuning } from "../tune/tuning.ts";
import { LAYERS, layersFrom } from "../tune/weave.ts";

const percent = (share: number): string => `${Math.round(100 * share)} %`;

export class TuneLoom {
  readonly #layers = byId("tune-loom-layers", HTMLSelectElement);
  readonly #note = byId("tune-loom-note", HTMLElement);
  readonly #drawing = new Drawing(byId("tune-loom", HTMLCanvasElement));

  constructor() {
    const { canvas } = this.#drawing;
    canvas.addEventListener("pointermove", ({ offsetX, offsetY }) => {
      this.#point(this.#drawing.placeAt(offsetX, offsetY));
    });
    canvas.addEventListener("pointerleave", () => this.#point(undefined));
    canvas.addEventListener("keydown", (event) => {
      const { weave, pointed } = this.#drawing;
      if (!weave || modified(event)) return;
      const to = placeAfterKey(event, weave, pointed ?? { at: weave.tokens.length - 1 });
      if (!to) return;
      event.preventDefault();
      this.#point(to);
    });
  }

  /** Which layers can be chosen. */
  start(count: number): void {
    const parts = Array.from({ length: Math.ceil(count / LAYERS) }, (_, part) => part * LAYERS);
    const named = (first: number) => `layers ${first + 1} to ${Math.min(count, first + LAYERS)}`;
    this.#layers.replaceChildren(
      new Option(count > LAYERS ? "from the first to the last" : "all layers", "all"),
      ...(count > LAYERS ? parts.map((first) => new Option(named(first), `${first}`)) : []),
    );
  }

  /** Weaves a prompt and its answer. Gives how many layers are shown. */
  async show(tuning: Tuning, chat: Chat, adapted: boolean, signal: AbortSignal): Promise<number> {
    const { value } = this.#layers;
    const count = shapeOf(tuning.base.config).layers ?? 1;
    const layers = layersFrom(value === "all" ? value : Number(value), count);
    const woven = await tuning.look(chat, adapted, layers, signal);
    this.#drawing.show(woven, { wanted: undefined, ghost: [] }, new Set());
    const { pointed } = this.#drawing;
    const there = pointed && pointed.at < woven.tokens.length && !pointed.layer;
    this.#note.textContent =
      "Point at a thread or a word to see what it is, or go through them by the arrow keys.";
    this.#point(there ? pointed : undefined);
    const said = woven.tokens.slice(woven.given).map((token) => woven.signs?.get(token));
    this.#drawing.canvas.ariaLabel =
      `Layers ${layers.map((layer) => layer + 1).join(", ")} of the model, with ${woven.shape.heads} heads each, ` +
      `over the end of the prompt and its answer: ${said.join(" ") || "nothing"}`;
    return layers.length;
  }

  #point(place: Place | undefined): void {
    const { weave } = this.#drawing;
    this.#drawing.pointed = place;
    this.#drawing.refresh();
    const words = weave && place && told(weave, place);
    if (words && words !== this.#note.textContent) this.#note.textContent = words;
  }
}

/** The place that has the largest sum of shares. */
function strongest(heads: readonly Float32Array[]): number {
  const sums = Array.from(heads[0] ?? [], (_, from) =>
    heads.reduce((sum, shares) => sum + shares[from]!, 0),
  );
  return sums.indexOf(Math.max(...sums));
}

/** What is pointed at, in words. */
function told(weave: Weave, { at, layer, head, from }: Place): string {
  const word = (place: number) => `“${weave.signs?.get(weave.tokens[place]!) ?? ""}”`;
  if (layer === undefined || head === undefined || from === undefined) {
    const { token, share } = weave.guesses[at]!;
    const says = `Behind ${word(at)} it says “${weave.signs?.get(token) ?? ""}”, ${percent(share)} sure.`;
    const looks = weave.shares.map((heads, one) => {
      const all = heads.map((rows) => rows[at]!);
      const most = strongest(all);
      return `layer ${weave.numbers![one]! + 1} looks most at ${word(most)}`;
    });
    return `${says} Of its heads together ${looks.join(", ")}.`;
  }
  const share = weave.shares[layer]![head]![at]![from]!;
  return `Layer ${weave.numbers![layer]! + 1}, head ${head + 1}: ${word(at)} looks at ${word(from)}, ${percent(share)}.`;
}
