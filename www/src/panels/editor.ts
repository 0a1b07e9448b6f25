/** The model editor: sliders, and what the model takes before anything is created. */
import type { Estimate, ModelConfig } from "tinyloom/worker";
import { byId, bytes, duration, make, sentence, whole } from "../dom.ts";
import { kindsOf, refusal } from "../estimates.ts";
import type { Lab } from "../lab.ts";
import { memoryLimit } from "../memory-limit.ts";
import type { RunSettings } from "../settings.ts";
import { shapeOf } from "../shape.ts";
import { tableRow } from "../table.ts";

/** What each slider chooses from. */
const CHOICES = {
  layers: [1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24],
  width: [32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048],
  heads: [1, 2, 4, 8, 16],
  context: [32, 64, 128, 256, 512, 1024, 2048, 4096],
  // The stories have groups of letters for 413 tokens.
  vocabulary: [256, 384, 512, 1024, 2048, 4096, 8192, 16384, 32768],
};
type Slider = keyof typeof CHOICES;

/** What helps where a model does not fit: what it has more of than the least. */
function adviceFor(config: ModelConfig): string {
  const { layers = 1, width = 0 } = shapeOf(config);
  const has = { layers, width, vocabulary: config.vocab_size ?? 0 };
  const more = (slider: keyof typeof has) => has[slider] > CHOICES[slider][0]!;
  const fewer = [
    ...(more("width") ? ["make it narrower"] : []),
    ...(more("layers") ? ["give it fewer layers"] : []),
    ...(more("vocabulary") ? ["give it a smaller vocabulary"] : []),
  ];
  return sentence(fewer.length > 0 ? fewer.join(", or ") : "give a step fewer tokens");
}
const SLIDERS = Object.keys(CHOICES) as Slider[];

const input = (slider: Slider) => byId(`own-${slider}`, HTMLInputElement);

export class EditorPanel {
  readonly #form = byId("editor", HTMLElement);
  readonly #table = byId("estimate", HTMLTableElement);
  readonly #note = byId("estimate-note", HTMLElement);
  #asked = 0;

  constructor() {
    for (const slider of SLIDERS) {
      const element = input(slider);
      element.min = "0";
      element.max = String(CHOICES[slider].length - 1);
      element.addEventListener("input", () => this.#label());
      element.addEventListener("change", () => this.#label());
    }
    this.config = {};
  }

  set hidden(value: boolean) {
    this.#form.hidden = value;
  }

  /** Letters that the model sees at once: the nearest choice. */
  set context(letters: number) {
    this.#set("context", letters);
    this.#label();
  }

  /** Problems are of letters. */
  set ofLetters(value: boolean) {
    const slider = input("vocabulary");
    if (value) slider.value = "0";
    slider.disabled = value || input("layers").disabled;
    this.#label();
  }

  value(slider: Slider): number {
    return CHOICES[slider][input(slider).valueAsNumber]!;
  }

  /** The model that the sliders say, with the names of Hugging Face. */
  get config(): ModelConfig {
    const [width, heads] = [this.value("width"), this.value("heads")];
    return {
      vocab_size: this.value("vocabulary"),
      hidden_size: width,
      intermediate_size: 3 * width,
      num_hidden_layers: this.value("layers"),
      num_attention_heads: heads,
      num_key_value_heads: Math.max(1, heads / 2),
      max_position_embeddings: this.value("context"),
      initializer_range: 0.05,
      tie_word_embeddings: true,
    };
  }

  /** Sets the sliders to the nearest model. */
  set config(config: ModelConfig) {
    const { layers = 2, width = 64, heads = 4, positions = 64 } = shapeOf(config);
    this.#set("layers", layers);
    this.#set("width", width);
    this.#set("heads", heads);
    this.#set("context", positions);
    this.#set("vocabulary", config.vocab_size ?? 256);
    this.#label();
  }

  #set(slider: Slider, wanted: number): void {
    const choices = CHOICES[slider];
    const nearest = choices.findIndex((choice) => choice >= wanted);
    input(slider).value = String(nearest < 0 ? choices.length - 1 : nearest);
  }

  #label(): void {
    for (const slider of SLIDERS) {
      const text = whole(this.value(slider));
      byId(`own-${slider}-value`, HTMLElement).textContent = text;
      input(slider).setAttribute("aria-valuetext", text);
    }
  }

  /**
   * Shows what a run of these settings takes.
   *
   * @returns why it is refused; undefined where it fits.
   */
  async judge(lab: Lab, settings: RunSettings): Promise<string | undefined> {
    const asked = ++this.#asked;
    const { capabilities } = lab.runtime;
    const { config, tokensPerStep, steps } = settings;
    let refused: string | undefined;
    let estimate: Estimate | undefined;
    try {
      estimate = await lab.estimate(config, { trainer: { tokensPerStep } }, capabilities);
      const words = { what: "This model does not fit", advice: adviceFor(config) };
      refused = refusal(estimate, memoryLimit(capabilities), words);
    } catch (error) {
      refused = `This model is refused: ${(error as Error).message}`;
    }
    if (asked === this.#asked) this.#show(estimate, refused, steps);
    return refused;
  }

  #show(estimate: Estimate | undefined, refused: string | undefined, steps: number): void {
    this.#note.textContent = refused ?? "";
    this.#note.hidden = !refused;
    const { parameters = 0, bytes: parts, milliseconds } = estimate ?? {};
    const { total = 0 } = parts ?? {};
    this.#table.hidden = !estimate;
    this.#table.dataset["bytes"] = String(total);
    const seconds = ((milliseconds?.step ?? Number.NaN) * steps) / 1000;
    this.#table.dataset["seconds"] = String(seconds);
    const time = duration(seconds);
    const known = Number.isFinite(seconds);
    byId("estimate-sum", HTMLElement).textContent =
      estimate === undefined ? "" : `: ${bytes(total)}${known ? `, about ${time}` : ""}`;
    const rows = parts ? kindsOf(parts) : [];
    this.#table.replaceChildren(
      make(
        "tbody",
        "",
        tableRow("weights, in number", whole(parameters)),
        ...rows.map(([kind, count]) => tableRow(`bytes: ${kind}`, bytes(count))),
        tableRow("bytes in all", bytes(total)),
        tableRow("predicted time", known ? `${time} for ${whole(steps)} steps` : "not known"),
      ),
    );
  }
}
