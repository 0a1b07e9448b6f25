/** The model editor: sliders, and what the model takes before anything is created. */
import type { Estimate, ModelConfig } from "tinyloom/worker";
import { byId, bytes, duration, make, sentence, whole } from "../dom.ts";
import { kindsOf, refusal } from "../estimates.ts";
import type { Lab } from "../lab.ts";
import { memoryLimit } from "../memory-limit.ts";
import {
  CHOICES,
  configOf,
  fittingHeads,
  nearest,
  SLIDERS,
  type Slider,
  type Values,
  valuesOf,
} from "../own-model.ts";
import type { RunSettings } from "../settings.ts";
import { shapeOf } from "../shape.ts";
import { tableRow } from "../table.ts";

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

  /** The model that the sliders say. */
  get config(): ModelConfig {
    const values = SLIDERS.map((slider) => [slider, this.value(slider)]);
    return configOf(Object.fromEntries(values) as Values);
  }

  /** Sets the sliders to the nearest model. */
  set config(config: ModelConfig) {
    const values = valuesOf(config);
    for (const slider of SLIDERS) this.#set(slider, values[slider]);
    this.#label();
  }

  #set(slider: Slider, wanted: number): void {
    input(slider).value = String(nearest(slider, wanted));
  }

  /** A head has a width that the package takes: wide models have more heads. */
  #fitHeads(): void {
    const fitting = fittingHeads(this.value("width"));
    if (!fitting.includes(this.value("heads"))) {
      const heads = this.value("heads");
      this.#set("heads", heads < fitting[0]! ? fitting[0]! : fitting.at(-1)!);
    }
  }

  #label(): void {
    this.#fitHeads();
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
