import { byId, make } from "../dom.ts";
import { isPresetName, type PresetName, presets } from "../presets.ts";
import type { RunChoices, RunSettings } from "../settings.ts";
import type { TextChoice } from "../text.ts";

const kinds = ["stories", "paste", "file"] as const;

/** The set-up form: text, size and training settings. */
export class SetupPanel {
  readonly element = byId("setup", HTMLFormElement);
  readonly #source = byId("text-source", HTMLSelectElement);
  readonly #paste = byId("paste", HTMLTextAreaElement);
  readonly #file = byId("file", HTMLInputElement);
  readonly #fileName = byId("file-name", HTMLElement);
  readonly #size = byId("size", HTMLSelectElement);
  #chosenFile: File | undefined;

  constructor() {
    for (const [name, { label }] of Object.entries(presets)) {
      this.#size.append(new Option(label, name));
    }
    this.#source.addEventListener("change", () => this.#showSource());
    this.#size.addEventListener("change", () => this.#showPreset());
    this.#file.addEventListener("change", () => this.take(this.#file.files?.[0]));
    this.#showSource(); // a reload may have kept another choice
    this.#showPreset();
  }

  set size(name: PresetName) {
    this.#size.value = name;
    this.#showPreset();
  }

  set disabled(value: boolean) {
    const fields = this.element.querySelectorAll<HTMLInputElement>("input, select, textarea");
    for (const field of fields) field.disabled = value;
  }

  /** The chosen text; a message where there is none yet. */
  text(): TextChoice | string {
    const kind = kinds.find((one) => one === this.#source.value) ?? "stories";
    if (kind === "stories") return { kind };
    if (kind === "paste") {
      const text = this.#paste.value;
      return text.trim() === ""
        ? "Paste some text first, or choose the built-in stories."
        : { kind, text };
    }
    const file = this.#chosenFile;
    return file ? { kind, file } : "Choose a file first, or drop one on the page.";
  }

  choices(): RunChoices {
    const number = (id: string): number => byId(id, HTMLInputElement).valueAsNumber;
    const choices: RunChoices = {
      config: this.#size.value,
      sequenceLength: number("sequence-length"),
      tokensPerStep: number("tokens-per-step"),
      steps: number("steps"),
      seed: number("seed"),
    };
    // A rate left as the size has it keeps the size's own end of the schedule.
    const rate = number("learning-rate");
    return rate === this.#preset().learningRate ? choices : { ...choices, learningRate: rate };
  }

  /** What a run of these settings is called. */
  get name(): string {
    return `${this.#preset().label.split(",")[0]} on ${this.#source.selectedOptions[0]!.text.toLowerCase()}`;
  }

  /** Shows the settings of a run that was kept. */
  show(settings: RunSettings): void {
    this.#set("sequence-length", settings.sequenceLength);
    this.#set("tokens-per-step", settings.tokensPerStep);
    this.#set("learning-rate", settings.learningRate);
    this.#set("steps", settings.steps);
    this.#set("seed", settings.seed);
  }

  #preset() {
    return presets[isPresetName(this.#size.value) ? this.#size.value : "story"];
  }

  #showPreset(): void {
    const { sequenceLength, tokensPerStep, learningRate, steps } = this.#preset();
    this.#set("sequence-length", sequenceLength);
    this.#set("tokens-per-step", tokensPerStep);
    this.#set("learning-rate", learningRate);
    this.#set("steps", steps);
  }

  #set(id: string, value: number): void {
    byId(id, HTMLInputElement).value = String(value);
  }

  #showSource(): void {
    for (const part of this.element.querySelectorAll<HTMLElement>("[data-for]")) {
      part.hidden = part.dataset["for"] !== this.#source.value;
    }
  }

  /** Makes a file the text to learn from. */
  take(file: File | undefined): void {
    if (!file || this.#source.disabled) return;
    this.#chosenFile = file;
    this.#source.value = "file";
    this.#showSource();
    this.#fileName.replaceChildren(
      make("strong", "", file.name),
      ` · ${file.size.toLocaleString("en")} bytes`,
    );
  }
}
