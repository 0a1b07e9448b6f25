/** The layers of the live model: where each token of a sample looks, and which tokens the model treats alike. */
import { TinyloomError } from "tinyloom/worker";
import { byId, make } from "../dom.ts";
import { Embeddings, likeliestNext, type Read, read } from "../looking.ts";
import { ordinal } from "../loom/explain.ts";
import type { WrittenToken } from "../sample.ts";
import { shapeOf } from "../shape.ts";
import { clearest } from "../tasks/answers.ts";
import type { Training } from "../training.ts";
import { drawAttention, rowAt } from "./attention-map.ts";
import { showError } from "./status.ts";

/** The most tokens of the text. */
const TOKENS = 40;
const NEIGHBOURS = 8;
/** Guesses of the next letter, and the last letters that they follow. */
const [GUESSES, SEEN] = [2, 9];

/** What is looked at: the embeddings, or a layer. */
type Place = "embeddings" | number;

const percent = (share: number): string => `${Math.round(100 * share)}\u00a0%`;
/** A smaller share is not worth a word. */
const LEAST = 0.01;

export class InsidePanel {
  readonly #details = byId("inside", HTMLDetailsElement);
  readonly #stack = byId("layers", HTMLElement);
  readonly #head = byId("head", HTMLSelectElement);
  readonly #headField = byId("head-field", HTMLElement);
  readonly #text = byId("inside-text", HTMLElement);
  readonly #map = byId("attention-map", HTMLCanvasElement);
  readonly #figure = byId("attention-figure", HTMLElement);
  readonly #note = byId("inside-note", HTMLElement);
  readonly #neighbours = byId("neighbours", HTMLOListElement);
  #training: Training | undefined;
  /** What was written last. */
  #sample = "";
  #place: Place = 0;
  /** The letter that is looked at, and the one that the visitor wants, where the text has it. */
  #token = 0;
  #wanted = Number.POSITIVE_INFINITY;
  #read: Read = { ids: new Uint32Array(), texts: [] };
  #shares: Float32Array = new Float32Array();
  #logits: Float32Array = new Float32Array();
  #embeddings: Embeddings | undefined;
  /** Only one look at a time: what changes meanwhile is looked at afterwards. */
  #looking = false;
  #again = false;

  constructor() {
    this.#details.addEventListener("toggle", () => void this.#look());
    this.#head.addEventListener("change", () => void this.#look());
    this.#text.addEventListener("click", ({ target }) => {
      const at = [...this.#text.children].indexOf(target as Element);
      if (at >= 0) void this.#want(at);
    });
    this.#map.addEventListener("click", ({ clientY }) => {
      const row = rowAt(this.#map, this.#read.ids.length, clientY);
      if (row !== undefined) void this.#want(row);
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#draw());
    this.#text.addEventListener("keydown", (event) => {
      const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (move === undefined) return;
      event.preventDefault();
      void this.#want(this.#token + move);
    });
  }

  /** Opens the panel, so that a visitor sees the transformer without asking for it. */
  open(): void {
    this.#details.open = true;
  }

  /** The model that is looked into from now on. */
  start(training: Training): void {
    this.#training = training;
    byId("inside-view", HTMLElement).hidden = true;
    this.#sample = training.exampleText;
    this.#place = 0;
    this.#wanted = Number.POSITIVE_INFINITY;
    const { layers = 1, heads = 1 } = shapeOf(training.model.config);
    const places: Place[] = ["embeddings", ...Array.from({ length: layers }, (_, at) => at)];
    this.#stack.replaceChildren(...places.reverse().map((place) => this.#button(place)));
    const options = Array.from({ length: heads }, (_, at) => new Option(`head ${at + 1}`, `${at}`));
    this.#head.replaceChildren(...options);
  }

  /** The GPU is gone: what is shown stays as it was, and nothing is looked at any more. */
  end(): void {
    if (byId("inside-view", HTMLElement).hidden) {
      byId("inside-step", HTMLElement).textContent =
        "The GPU is gone: reload the page to look inside.";
    }
    this.#training = undefined;
  }

  /** Looks at the model as it is. Of a run that trains each sample does so, and not before its first step. */
  refresh(): void {
    void this.#look();
  }

  /** A new sample: the model has changed. Of answers the first is looked at, with its problem. */
  sampled(tokens: readonly WrittenToken[] = []): void {
    const whole = tokens.map(({ text }) => text).join("");
    const text = this.#training?.task ? clearest(whole.split("\n")) : whole;
    if (text.trim() !== "") this.#sample = text;
    void this.#look();
  }

  #button(place: Place): HTMLButtonElement {
    const button = make("button", "", place === "embeddings" ? "Embeddings" : `Layer ${place + 1}`);
    button.type = "button";
    button.dataset["place"] = String(place);
    button.addEventListener("click", () => {
      this.#place = place;
      void this.#look();
    });
    return button;
  }

  /** Asks the model as it is, if the panel is open. */
  async #look(): Promise<void> {
    if (!this.#details.open || !this.#training) return;
    this.#again = this.#looking;
    if (this.#looking) return;
    this.#looking = true;
    try {
      await this.#ask(this.#training);
    } catch (error) {
      // The model may have been left meanwhile.
      if (TinyloomError.from(error).code !== "freed") showError(error);
    } finally {
      this.#looking = false;
    }
    if (this.#again) await this.#look();
  }

  async #ask(training: Training): Promise<void> {
    const { model, codec, text } = training;
    const { positions: most = TOKENS } = shapeOf(model.config);
    const place = this.#place;
    const tokens = await read(codec, this.#sample, Math.min(TOKENS, most));
    const head = Number(this.#head.value);
    if (place === "embeddings") this.#embeddings = await Embeddings.of(model, codec, text.bytes);
    else this.#shares = await model.attention(tokens.ids, { layer: place, head });
    this.#logits = await model.logits(tokens.ids);
    this.#read = tokens;
    byId("inside-view", HTMLElement).hidden = false;
    const ofLayer = place !== "embeddings";
    for (const button of this.#stack.children) {
      const pressed = (button as HTMLElement).dataset["place"] === String(place);
      button.setAttribute("aria-pressed", String(pressed));
    }
    this.#headField.hidden = !ofLayer;
    this.#figure.hidden = !ofLayer;
    this.#neighbours.hidden = ofLayer;
    byId("inside-step", HTMLElement).textContent = `Of the model after step ${training.step}.`;
    this.#text.replaceChildren(...tokens.texts.map((one) => make("span", "letter", one)));
    await this.#choose(this.#wanted);
  }

  /** The visitor chooses a letter. */
  #want(at: number): Promise<void> {
    this.#wanted = Math.min(Math.max(at, 0), this.#read.ids.length - 1);
    return this.#choose(this.#wanted);
  }

  /** Shows what a token looks at, or what is like it. */
  async #choose(wanted: number): Promise<void> {
    const count = this.#read.ids.length;
    this.#token = Math.min(Math.max(wanted, 0), count - 1);
    const ofLayer = this.#place !== "embeddings";
    const row = this.#shares.subarray(this.#token * count, (this.#token + 1) * count);
    for (const [at, letter] of [...this.#text.children].entries()) {
      const share = ofLayer ? (row[at] ?? 0) : 0;
      (letter as HTMLElement).style.setProperty("--share", share.toFixed(3));
      letter.classList.toggle("current", at === this.#token);
    }
    this.#draw();
    await this.#sayGuess();
    const name = this.#read.texts[this.#token] ?? "";
    if (ofLayer) this.#sayAttention(name, row);
    else await this.#sayNeighbours(name);
  }

  /** What goes in at the bottom of the layers, and what comes out at their top. */
  async #sayGuess(): Promise<void> {
    const { ids, texts } = this.#read;
    const width = this.#logits.length / Math.max(1, ids.length);
    const row = this.#logits.subarray(this.#token * width, (this.#token + 1) * width);
    const next = await likeliestNext(this.#training!.codec, row, GUESSES);
    const likely = next.filter(([, share], at) => at === 0 || share >= LEAST);
    const said = likely.map(([name, share]) => `${name}\u00a0${percent(share)}`);
    byId("inside-guess", HTMLElement).textContent = said.join(", ");
    const seen = texts.slice(0, this.#token + 1).join("");
    const shown = seen.length > SEEN ? `…${seen.slice(-SEEN)}` : seen;
    byId("inside-seen", HTMLElement).textContent = shown;
  }

  #sayAttention(name: string, row: Float32Array): void {
    const order = [...row.keys()].sort((a, b) => row[b]! - row[a]!).slice(0, 3);
    const seen = order.filter((at) => row[at]! >= LEAST);
    const most = seen.map((at) => {
      const which =
        at === this.#token ? "itself" : `the ${ordinal(at + 1)}, “${this.#read.texts[at]}”`;
      return `${which} ${percent(row[at]!)}`;
    });
    this.#note.textContent = `Letter ${this.#token + 1}, “${name}”, looks at ${most.join("; ")}.`;
  }

  async #sayNeighbours(name: string): Promise<void> {
    const id = this.#read.ids[this.#token];
    const near = id === undefined ? [] : await this.#embeddings?.nearest(id, NEIGHBOURS);
    const rows = (near ?? []).map((one) => {
      const row = make(
        "li",
        "",
        make("b", "", one.name),
        ` ${one.cosine.toFixed(2).replace("-", "−")}`,
      );
      row.style.setProperty("--share", Math.max(0, one.cosine).toFixed(2));
      return row;
    });
    this.#neighbours.replaceChildren(...rows);
    this.#note.textContent =
      rows.length === 0
        ? `“${name}” is not in the text that it learns from.`
        : `The model treats these most like “${name}”. 1 would be the same, 0 unrelated, −1 the opposite.`;
  }

  /** All rows at once, where a layer is looked at. */
  #draw(): void {
    if (this.#place === "embeddings" || !this.#details.open || this.#read.ids.length === 0) return;
    drawAttention(this.#map, this.#read.texts, this.#shares, this.#token);
    const where = `layer ${this.#place + 1}, ${this.#head.selectedOptions[0]?.text}`;
    this.#map.setAttribute("aria-label", `Attention of ${where}: a row per letter`);
  }
}
