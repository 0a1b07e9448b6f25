import { byId, make, whole } from "../dom.ts";
import { type ScoreKind, scoreKind } from "../exam.ts";
import type { Lab } from "../lab.ts";
import {
  isPresetName,
  LETTERS,
  openSettings,
  type PresetName,
  presets,
  sizeOf,
} from "../presets.ts";
import type { RunChoices, RunSettings } from "../settings.ts";
import { FIRST, isTaskName, type TaskName, tasks } from "../tasks/index.ts";
import type { Text, TextChoice } from "../text.ts";
import { EditorPanel } from "./editor.ts";

/** The model that the editor's sliders say. */
const OWN = "own";
/** The size for tasks. */
const SMALL: PresetName = "thimble";

/** The set-up form: text, size and training settings. */
export class SetupPanel {
  readonly element = byId("setup", HTMLFormElement);
  readonly #source = byId("text-source", HTMLSelectElement);
  readonly #paste = byId("paste", HTMLTextAreaElement);
  readonly #file = byId("file", HTMLInputElement);
  readonly #fileName = byId("file-name", HTMLElement);
  readonly #size = byId("size", HTMLSelectElement);
  readonly #hint = byId("task-hint", HTMLElement);
  readonly #sizeHint = byId("size-hint", HTMLElement);
  #chosenFile: File | undefined;
  readonly #editor = new EditorPanel();
  /** The size for texts on this adapter. */
  #ofTexts: PresetName = "story";

  constructor() {
    const problems = byId("task-options", HTMLOptGroupElement);
    // What the document has is what is seen before this runs.
    problems.replaceChildren(
      ...Object.entries(tasks).map(([name, { label }]) => new Option(label, name)),
    );
    this.#size.replaceChildren();
    this.#source.value = FIRST; // a reload may have kept another choice
    const failing = make("optgroup", "");
    failing.label = "Made to fail";
    for (const [name, preset] of Object.entries(presets)) {
      const group = "fails" in preset ? failing : this.#size;
      group.append(new Option(preset.label, name));
    }
    this.#size.append(new Option("My own", OWN), failing);
    this.#source.addEventListener("change", () => {
      this.#showSource();
      this.#suitSource();
    });
    this.#size.addEventListener("change", () => this.#showPreset());
    byId("own-context", HTMLInputElement).addEventListener("change", () => {
      if (this.#size.value !== OWN) return;
      const length = this.#editor.value("context");
      this.#set("sequence-length", length);
      const perStep = byId("tokens-per-step", HTMLInputElement);
      if (perStep.valueAsNumber < length) perStep.value = String(length);
    });
    this.#file.addEventListener("change", () => this.take(this.#file.files?.[0]));
    this.#showSource();
    this.#suitSource();
  }

  /** The size for texts on this adapter. */
  set ofTexts(name: PresetName) {
    this.#ofTexts = name;
    this.#suitSource();
  }

  /** What is to be learned, by its name in the form. */
  get source(): string {
    return this.#source.value;
  }

  /** The same as a visitor reads it. */
  get label(): string {
    return this.#source.selectedOptions[0]?.text ?? "";
  }

  /** Chooses what to learn. */
  choose(source: string): void {
    this.#source.value = source;
    this.#showSource();
    this.#suitSource();
  }

  /** Lets the visitor paste a text. */
  ask(): void {
    this.choose("paste");
    this.#paste.focus();
  }

  /** The text that may be pasted. */
  set paste(text: string) {
    this.#paste.value = text;
  }

  set disabled(value: boolean) {
    const fields = this.element.querySelectorAll<HTMLInputElement>("input, select, textarea");
    for (const field of fields) field.disabled = value;
    this.#showEditor();
  }

  /** The chosen text; a message where there is none yet. */
  text(): TextChoice | string {
    const kind = this.#source.value;
    if (isTaskName(kind)) return { kind };
    if (kind === "stories" || kind === "shakespeare") return { kind };
    if (kind === "paste") {
      const text = this.#paste.value;
      return text.trim() === ""
        ? "Paste some text first, or choose something else to learn."
        : { kind: "paste", text };
    }
    const file = this.#chosenFile;
    return file ? { kind: "file", file } : "Choose a file first, or drop one on the page.";
  }

  /** What a run of the chosen text is measured by. */
  get scores(): ScoreKind {
    const kind = this.#source.value;
    return scoreKind(isTaskName(kind) ? kind : undefined, kind === "stories");
  }

  choices(): RunChoices {
    const number = (id: string): number => byId(id, HTMLInputElement).valueAsNumber;
    const own = this.#size.value === OWN;
    const { config } = this.#preset();
    const ofLetters = this.vocabulary === undefined && config.vocab_size > LETTERS;
    const known = ofLetters ? { ...config, vocab_size: LETTERS } : this.#size.value;
    const choices: RunChoices = {
      config: own ? this.#editor.config : known,
      sequenceLength: number("sequence-length"),
      tokensPerStep: number("tokens-per-step"),
      steps: number("steps"),
      seed: number("seed"),
    };
    // A rate left as the size has it keeps the size's own end of the schedule.
    const rate = number("learning-rate");
    return rate === this.#preset().learningRate && !own && !ofLetters
      ? choices
      : { ...choices, learningRate: rate };
  }

  /** Shows what a run of these settings takes; gives why it is refused. */
  judge(lab: Lab, settings: RunSettings): Promise<string | undefined> {
    return this.#editor.judge(lab, settings);
  }

  /** Whether the vocabulary is a visitor's own choice, which is to be kept to. */
  get ownVocabulary(): boolean {
    return this.#size.value === OWN;
  }

  /** Size of the vocabulary that is to be learned from the text; undefined where letters are the tokens. */
  get vocabulary(): number | undefined {
    if (this.#task) return undefined;
    const own = this.#size.value === OWN;
    const words = own ? this.#editor.value("vocabulary") : this.#preset().config.vocab_size;
    return words > LETTERS ? words : undefined;
  }

  /** What a run of these settings is called. */
  get name(): string {
    const model =
      this.#size.value === OWN
        ? `${this.#editor.value("layers")} × ${this.#editor.value("width")}`
        : this.#preset().label.split(",")[0];
    return `${model} on ${this.#source.selectedOptions[0]!.text.toLowerCase()}`;
  }

  /** Shows the settings of a run that was kept, and what it learns, with a text of the visitor's. */
  async show(settings: RunSettings, { source, name, bytes }: Text): Promise<void> {
    this.#source.value = source;
    if (source === "paste") this.#paste.value = await bytes.text();
    if (source === "file") this.#chose(new File([bytes], name.replace(/, [\d,]+ letters$/, "")));
    this.#showSource();
    const known = sizeOf(settings);
    this.#size.value = known ?? OWN;
    if (!known) this.#editor.config = settings.config;
    this.#showEditor();
    this.#set("sequence-length", settings.sequenceLength);
    this.#set("tokens-per-step", settings.tokensPerStep);
    this.#set("learning-rate", settings.learningRate);
    this.#set("steps", settings.steps);
    this.#set("seed", settings.seed);
  }

  #preset() {
    return presets[isPresetName(this.#size.value) ? this.#size.value : "story"];
  }

  get #task(): TaskName | undefined {
    return isTaskName(this.#source.value) ? this.#source.value : undefined;
  }

  /** Problems need the small model and settings of their own, texts another model. */
  #suitSource(): void {
    const own = this.#size.value === OWN;
    if (this.#task && !own) this.#size.value = SMALL;
    else if (this.#size.value === SMALL) this.#size.value = this.#ofTexts;
    else {
      this.#showEditor();
      return;
    }
    this.#showPreset();
  }

  #showEditor(): void {
    this.#editor.hidden = this.#size.value !== OWN;
    this.#editor.ofLetters = this.#task !== undefined;
  }

  #showPreset(): void {
    this.#showEditor();
    if (this.#size.value === OWN) {
      this.#sizeHint.hidden = true;
      this.#editor.context = byId("sequence-length", HTMLInputElement).valueAsNumber;
      // What was made to fail is no start for a model of one's own.
      const rate = byId("learning-rate", HTMLInputElement);
      if (rate.valueAsNumber === presets.hot.learningRate) {
        this.#set(rate.id, openSettings.learningRate);
      }
      return;
    }
    const preset = this.#preset();
    const fails = "fails" in preset && preset.fails;
    this.#sizeHint.hidden = !fails;
    this.#sizeHint.textContent = fails || "";
    const own = this.#task && (fails || this.#size.value === SMALL) && tasks[this.#task].training;
    const { sequenceLength, tokensPerStep, steps } = { ...preset, ...own };
    const { learningRate } = this.#size.value === "hot" ? preset : { ...preset, ...own };
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
    this.#hint.hidden = !this.#task;
    if (this.#task) this.#hint.textContent = tasks[this.#task].hint;
  }

  /** Makes a file the text to learn from. */
  take(file: File | undefined): void {
    if (!file || this.#source.disabled) return;
    this.choose("file");
    this.#chose(file);
  }

  #chose(file: File): void {
    this.#chosenFile = file;
    this.#fileName.replaceChildren(make("strong", "", file.name), ` · ${whole(file.size)} letters`);
  }
}
