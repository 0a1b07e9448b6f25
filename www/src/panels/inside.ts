/** The layers of the live model: where each token of a sample looks, and which tokens the model treats alike. */
import { TinyloomError } from "tinyloom/worker";
import { byId, make } from "../dom.ts";
import { Embeddings, type Read, read } from "../looking.ts";
import type { Training } from "../training.ts";
import { showError } from "./status.ts";

/** The most tokens of the text. */
const TOKENS = 40;
const NEIGHBOURS = 8;

/** What is looked at: the embeddings, or a layer. */
type Place = "embeddings" | number;

const percent = (share: number): string => `${Math.round(100 * share)} %`;

export class InsidePanel {
  readonly #details = byId("inside", HTMLDetailsElement);
  readonly #stack = byId("layers", HTMLElement);
  readonly #head = byId("head", HTMLSelectElement);
  readonly #headField = byId("head-field", HTMLElement);
  readonly #text = byId("inside-text", HTMLElement);
  readonly #map = byId("attention-map", HTMLCanvasElement);
  readonly #note = byId("inside-note", HTMLElement);
  readonly #neighbours = byId("neighbours", HTMLOListElement);
  #training: Training | undefined;
  /** What was written last. */
  #sample = "";
  #place: Place = 0;
  #token = 0;
  #read: Read = { ids: new Uint32Array(), texts: [] };
  #shares: Float32Array = new Float32Array();
  #embeddings: Embeddings | undefined;
  /** Only one look at a time: what changes meanwhile is looked at afterwards. */
  #looking = false;
  #again = false;

  constructor() {
    this.#details.addEventListener("toggle", () => void this.#look());
    this.#head.addEventListener("change", () => void this.#look());
    this.#text.addEventListener("click", ({ target }) => {
      const at = [...this.#text.children].indexOf(target as Element);
      if (at >= 0) void this.#choose(at);
    });
    this.#text.addEventListener("keydown", (event) => {
      const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (move === undefined) return;
      event.preventDefault();
      void this.#choose(this.#token + move);
    });
  }

  /** The model that is looked into from now on. */
  start(training: Training): void {
    this.#training = training;
    byId("inside-view", HTMLElement).hidden = false;
    this.#sample = training.exampleText;
    this.#place = 0;
    this.#token = Number.POSITIVE_INFINITY;
    const { num_hidden_layers: layers = 1, num_attention_heads: heads = 1 } = training.model.config;
    const places: Place[] = ["embeddings", ...Array.from({ length: layers }, (_, at) => at)];
    this.#stack.replaceChildren(...places.reverse().map((place) => this.#button(place)));
    const options = Array.from({ length: heads }, (_, at) => new Option(`head ${at + 1}`, `${at}`));
    this.#head.replaceChildren(...options);
    void this.#look();
  }

  /** A new sample: the model has changed. */
  sampled(text: string): void {
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

  async #ask({ model, codec, text, step }: Training): Promise<void> {
    const { max_position_embeddings: most = TOKENS } = model.config;
    const place = this.#place;
    const tokens = await read(codec, this.#sample, Math.min(TOKENS, most));
    const head = Number(this.#head.value);
    if (place === "embeddings") this.#embeddings = await Embeddings.of(model, codec, text.bytes);
    else this.#shares = await model.attention(tokens.ids, { layer: place, head });
    this.#read = tokens;
    const ofLayer = place !== "embeddings";
    for (const button of this.#stack.children) {
      const pressed = (button as HTMLElement).dataset["place"] === String(place);
      button.setAttribute("aria-pressed", String(pressed));
    }
    this.#headField.hidden = !ofLayer;
    this.#map.hidden = !ofLayer;
    this.#neighbours.hidden = ofLayer;
    byId("inside-step", HTMLElement).textContent = `Of the model after step ${step}.`;
    this.#text.replaceChildren(...tokens.texts.map((one) => make("span", "letter", one)));
    if (ofLayer) this.#draw();
    await this.#choose(this.#token);
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
    const name = this.#read.texts[this.#token] ?? "";
    if (ofLayer) this.#sayAttention(name, row);
    else await this.#sayNeighbours(name);
  }

  #sayAttention(name: string, row: Float32Array): void {
    const order = [...row.keys()].sort((a, b) => row[b]! - row[a]!).slice(0, 3);
    const most = order.map((at) => {
      const self = at === this.#token ? " (itself)" : "";
      return `“${this.#read.texts[at]}”${self} ${percent(row[at]!)}`;
    });
    this.#note.textContent = `Letter ${this.#token + 1}, “${name}”, looks at ${most.join(", ")}.`;
  }

  async #sayNeighbours(name: string): Promise<void> {
    const id = this.#read.ids[this.#token];
    const near = id === undefined ? [] : await this.#embeddings?.nearest(id, NEIGHBOURS);
    const rows = (near ?? []).map((one) => {
      const row = make("li", "", make("b", "", one.name), ` ${one.cosine.toFixed(2)}`);
      row.style.setProperty("--share", Math.max(0, one.cosine).toFixed(2));
      return row;
    });
    this.#neighbours.replaceChildren(...rows);
    this.#note.textContent =
      rows.length === 0
        ? `“${name}” is not in the text that it learns from.`
        : `The model treats these most like “${name}”. 1 would be the same, 0 unrelated.`;
  }

  /** All rows at once: each letter's look back at the letters before it. */
  #draw(): void {
    const count = this.#read.ids.length;
    this.#map.width = count;
    this.#map.height = count;
    const context = this.#map.getContext("2d")!;
    const [red, green, blue] = [163, 60, 43];
    const image = context.createImageData(count, count);
    for (const [at, share] of this.#shares.entries()) {
      image.data.set([red, green, blue, Math.round(255 * Math.sqrt(share))], 4 * at);
    }
    context.putImageData(image, 0, 0);
    const where = `layer ${Number(this.#place) + 1}, ${this.#head.selectedOptions[0]?.text}`;
    this.#map.setAttribute("aria-label", `Attention of ${where}: a row per letter`);
  }
}
