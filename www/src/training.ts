import type {
  Dataset,
  Model,
  PlanRow,
  ProfileRow,
  StepMetrics,
  StoredRun,
  Trainer,
} from "tinyloom/worker";
import { grammarEntropy } from "../stories/entropy.ts";
import { type Data, freeData, type KeptCodec } from "./data.ts";
import { type Score, type ScoreKind, scoreKind } from "./exam.ts";
import { Examiner } from "./examiner.ts";
import { halfFile } from "./loom/half-file.ts";
import { RunSaver, type Stored } from "./run-saver.ts";
import type { KeptSample, RunStore } from "./run-store.ts";
import { type SampleOptions, type SamplePiece, sampleText, type WrittenToken } from "./sample.ts";
import { defaultPrompt, type RunSettings } from "./settings.ts";
import { Speed } from "./speed.ts";
import { answered, clearest } from "./tasks/answers.ts";
import { type TaskName, tasks } from "./tasks/index.ts";
import { END, type Problem } from "./tasks/task.ts";
import type { Text } from "./text.ts";

/** How often in a run the validation loss is taken. */
const EVALUATIONS = 25;
/** How often in a run a sample is made at the least. */
const SAMPLES = 5;
const SAMPLE_LENGTH = 140;
/** The likeliest tokens that are kept with each one of a sample. */
const ALTERNATIVES = 4;
/** The most letters of an answer. */
const ANSWER_LENGTH = 10;
/** Past steps that are shown before the page gets its turn. */
const PIECE = 500;

/** What happens while a model trains, in this order after each step. */
export type TrainingEvent =
  | {
      type: "step";
      step: number;
      loss: number;
      /** Recordings have neither. */
      gradNorm?: number;
      learningRate?: number;
      skipped: boolean;
      /** Absent where there is no pace yet. */
      tokensPerSecond?: number | undefined;
      milliseconds?: number;
    }
  | { type: "validation"; step: number; loss: number }
  /** A token of the sample that is being made. */
  | { type: "writing"; step: number; token: WrittenToken }
  /** The tokens are those of the pieces; older recordings have none. */
  | { type: "sample"; step: number; pieces: SamplePiece[]; tokens?: readonly WrittenToken[] }
  /** How well the model does what it is taught. */
  | { type: "score"; step: number; score: Score }
  /** The model's safetensors file in 16 bits, of a step whose weights were wanted. */
  | { type: "weights"; step: number; file: Uint8Array }
  /** A checkpoint is whole, with the last validation loss before it. */
  | { type: "stored"; stored: Stored; validation: number | undefined }
  /** The storage is full: from now on the run is in memory. */
  | { type: "full" };

/** What a training is made of. */
export interface Parts {
  settings: RunSettings;
  text: Text;
  data: Data;
  trainer: Trainer;
  run: StoredRun;
  /** Whether the run began with another model's weights instead of new ones. */
  pretrained: boolean;
}

/** One model in training with its text, kept in a run. */
export class Training {
  readonly settings: RunSettings;
  readonly text: Text;
  readonly pretrained: boolean;
  readonly model: Model;
  /** Says after which steps the weights are wanted; `last` where it is the last one for now. */
  wants: (step: number, last: boolean) => boolean = () => false;
  readonly #trainer: Trainer;
  readonly #data: Data;
  readonly #saver: RunSaver;
  readonly #examiner: Examiner;
  #halt = false;
  /** Whether a step was done since the model was made or loaded. */
  #stepped = false;
  /** The step after which the last sample was made. */
  #sampled = -1;
  /** The last validation loss. */
  #validation: number | undefined;

  private constructor({ settings, text, trainer, data, pretrained }: Parts, saver: RunSaver) {
    this.settings = settings;
    this.text = text;
    this.pretrained = pretrained;
    this.model = trainer.model;
    this.#trainer = trainer;
    this.#data = data;
    this.#saver = saver;
    this.#examiner = new Examiner(this.model, data, settings.sequenceLength);
  }

  static async of(store: RunStore, parts: Parts): Promise<Training> {
    return new Training(parts, await RunSaver.of(store, parts.trainer, parts.run));
  }

  /** The run that it is kept in. */
  get run(): StoredRun {
    return this.#saver.run;
  }

  /** Whether that ends with the page. */
  get inMemory(): boolean {
    return this.#saver.inMemory;
  }

  /** The newest checkpoint since the page has the run. */
  get stored(): Stored | undefined {
    return this.#saver.stored;
  }

  /** Steps done. */
  get step(): number {
    return this.#trainer.steps;
  }

  get finished(): boolean {
    return this.step >= this.settings.steps;
  }

  /** Whether bytes are the tokens. */
  get ofBytes(): boolean {
    return this.#data.codec.json === undefined;
  }

  /** What it learns, where that is a task with right answers. */
  get task(): TaskName | undefined {
    return this.#data.exam && this.text.task;
  }

  /** What it learns, said after "Learning". */
  get subject(): string {
    const task = this.task && tasks[this.task];
    return task ? `to ${task.label.toLowerCase()}` : `from ${this.text.name.split(", ")[0]}`;
  }

  /** What its score counts. */
  get scores(): ScoreKind {
    return scoreKind(this.task, this.text.judge !== undefined);
  }

  /** The vocabulary. */
  get words(): number {
    return this.settings.config.vocab_size ?? 256;
  }

  /**
   * The lowest loss that any model can reach, in nats per token, where it is known: the grammar's own entropy, and 0
   * for problems, since each has one right answer. A text has the same entropy in all whatever its tokens are.
   */
  get entropy(): number | undefined {
    if (this.task) return 0;
    const bytesPerToken = this.text.bytes.size / this.#data.dataset.tokens;
    return this.text.judge && grammarEntropy().natsPerByte * bytesPerToken;
  }

  /** The loss of guessing by how often each letter occurs, where letters are the tokens. */
  get letters(): number | undefined {
    return this.#data.letters;
  }

  /** Whether both learn the same kind of thing, so that their losses can be compared. */
  isLike(other: Training): boolean {
    const [own, its] = [this, other].map(({ task, scores, words }) => [task, scores, words].join());
    return own === its;
  }

  /** How text becomes tokens. */
  get codec(): KeptCodec {
    return this.#data.codec;
  }

  /** A text of the kind that it learns, for a look before there is a sample. */
  get exampleText(): string {
    const task = this.task && tasks[this.task];
    if (!task) return defaultPrompt(this.text.judge !== undefined);
    const lines = task.shown.map((prompt) => `${prompt}${task.mark}${task.solve(prompt)}`);
    return clearest(lines);
  }

  /** Tokens that the model learns from. */
  get trainTokens(): number {
    return this.#data.dataset.tokens - this.#data.dataset.validationTokens;
  }

  /** Problems that training never sees, where it learns a task. */
  get exam(): readonly Problem[] | undefined {
    return this.#data.exam;
  }

  /** What it learns from. */
  get dataset(): Dataset {
    return this.#data.dataset;
  }

  plan(): Promise<PlanRow[]> {
    return this.#trainer.plan();
  }

  /** The text of a row's kernel. */
  wgsl(row: number): Promise<string> {
    return this.#trainer.wgsl(row);
  }

  /** Whether there is a step that `profile` can do again. */
  get profiled(): boolean {
    return this.#stepped;
  }

  /** The plan with the time of each dispatch on the GPU, where that can be measured. It needs a step before. */
  profile(): Promise<ProfileRow[]> {
    return this.#trainer.profile();
  }

  /** What happened up to this step, from the run. */
  async *past(): AsyncGenerator<TrainingEvent, void, undefined> {
    const all = (await this.run.metrics()) as StepMetrics[];
    for (const [at, metrics] of all.entries()) {
      const { step, validationLoss } = metrics;
      if (step > this.step) break;
      if (at % PIECE === PIECE - 1) await new Promise((turn) => setTimeout(turn));
      yield stepEvent(metrics);
      if (validationLoss === undefined) continue;
      this.#validation = validationLoss;
      yield { type: "validation", step, loss: validationLoss };
    }
    const samples = (await this.run.samples()) as KeptSample[];
    // A step that was done twice is there twice.
    const written = new Map<number, KeptSample>();
    for (const sample of samples) {
      const { step, text, score } = sample;
      if (step > this.step) continue;
      if (text !== undefined) written.set(step, sample);
      if (score) yield { type: "score", step, score };
    }
    for (const [step, { text = "", tokens = [] }] of written) {
      this.#sampled = step;
      yield { type: "sample", step, pieces: this.#judged(text), tokens };
    }
  }

  /** Trains until the planned steps are done, or until `halt`; then keeps the model. */
  async *steps(): AsyncGenerator<TrainingEvent, void, undefined> {
    this.#halt = false;
    if (this.finished) return;
    const speed = new Speed();
    const { steps } = this.settings;
    for await (let metrics of this.#trainer.run(this.#data.dataset, { until: steps })) {
      const { step } = metrics;
      this.#stepped = true;
      yield { ...stepEvent(metrics), tokensPerSecond: speed.add(metrics) };
      yield* this.weights();
      if (this.#due(EVALUATIONS)) {
        const { loss } = await this.#trainer.evaluate(this.#data.probe);
        this.#validation = loss;
        yield { type: "validation", step, loss };
        metrics = { ...metrics, validationLoss: loss };
      }
      await this.#saver.note(metrics);
      if (isMilestone(step) || this.#due(SAMPLES)) yield* this.sample();
      if (this.#examiner.due) yield* this.score();
      yield* this.#keep(() => this.#saver.saveIfDue());
      if (this.#halt) break;
    }
    yield* this.keep();
  }

  /**
   * The weights as they are, if they are wanted.
   *
   * @param last - whether no step follows for now.
   */
  async *weights(last = false): AsyncGenerator<TrainingEvent, void, undefined> {
    const { step } = this;
    if (!this.wants(step, last)) return;
    const file = await halfFile(this.model);
    if (file) yield { type: "weights", step, file };
  }

  /** Ends `steps` after the current one. */
  halt(): void {
    this.#halt = true;
  }

  /** A sample of the model as it is, unless there is one of this step. */
  async *sample(): AsyncGenerator<TrainingEvent, void, undefined> {
    if (this.#sampled === this.step) return;
    this.#sampled = this.step;
    const { step } = this;
    const tokens: WrittenToken[] = [];
    for await (const token of this.#written(step)) {
      tokens.push(token);
      yield { type: "writing", step, token };
    }
    const text = tokens.map((token) => token.text).join("");
    await this.#saver.sample({ step, text, tokens });
    const pieces = this.#judged(text);
    yield { type: "sample", step, pieces, tokens };
    const score = this.#examiner.ofSentences(pieces);
    if (score) yield* this.#scored(step, score);
  }

  /** The sample of a step: how the text goes on, or of a task the prompts with their answers. */
  async *#written(step: number): AsyncGenerator<WrittenToken, void, undefined> {
    const { temperature, seed } = this.settings;
    if (this.task) return yield* this.#answers(tasks[this.task].shown);
    const prompt = defaultPrompt(this.text.judge !== undefined);
    yield* this.write(prompt, { length: SAMPLE_LENGTH, temperature, seed: seed + step });
  }

  /** How well the model does as it is; nothing for the stories, whose sentences are counted with each sample. */
  async *score(): AsyncGenerator<TrainingEvent, void, undefined> {
    const { step } = this;
    const score = await this.#examiner.ask(step);
    if (score) yield* this.#scored(step, score);
  }

  async *#scored(step: number, score: Score): AsyncGenerator<TrainingEvent, void, undefined> {
    await this.#saver.sample({ step, score });
    yield { type: "score", step, score };
  }

  /** Prompts of the task with what the model answers at temperature 0, one a line. */
  async *#answers(prompts: readonly string[]): AsyncGenerator<WrittenToken, void, undefined> {
    for (const [index, prompt] of prompts.entries()) {
      const asked = prompt + tasks[this.task!].mark;
      yield { text: index === 0 ? asked : `\n${asked}` };
      yield* this.write(asked, { length: ANSWER_LENGTH, temperature: 0, seed: 0 });
    }
  }

  /** Keeps the model of this step. */
  keep(): AsyncGenerator<TrainingEvent, void, undefined> {
    return this.#keep(() => this.#saver.save());
  }

  /** Keeps the last snapshot: the GPU is lost for good. */
  rescue(snapshot: number): AsyncGenerator<TrainingEvent, void, undefined> {
    return this.#keep(() => this.#saver.rescue(snapshot));
  }

  /** Keeps the model soon: the page may be about to end. */
  hurry(): void {
    this.#saver.hurry();
  }

  /** Continues a prompt; the tokens come as they are drawn. */
  async *write(prompt: string, options: Omit<SampleOptions, "context">) {
    const { codec } = this.#data;
    const tokens = await codec.encode(prompt === "" ? "\n" : prompt);
    const context = this.settings.sequenceLength;
    const stop = this.task && { stopTokens: [END] };
    const alternatives = Math.min(ALTERNATIVES, this.words);
    const all = { ...options, ...stop, alternatives, context };
    const name = (token: number) => codec.name(token);
    yield* sampleText(this.model, tokens, await codec.decoder(), name, all);
  }

  /** Frees the GPU's memory, and lets other tabs open the run. */
  async free(): Promise<void> {
    await this.run.close();
    await this.model.free();
    await freeData(this.#data);
  }

  async *#keep(save: () => Promise<void>): AsyncGenerator<TrainingEvent, void, undefined> {
    const [inMemory, before] = [this.inMemory, this.stored];
    await save();
    if (this.inMemory && !inMemory) yield { type: "full" };
    const { stored } = this;
    if (stored && stored !== before) yield { type: "stored", stored, validation: this.#validation };
  }

  #judged(text: string): SamplePiece[] {
    if (this.task) return answered(tasks[this.task], text);
    return this.text.judge?.judge(text, true) ?? [{ text }];
  }

  #due(times: number): boolean {
    const { steps } = this.settings;
    return this.finished || this.step % Math.max(1, Math.floor(steps / times)) === 0;
  }
}

/** Steps whose samples are worth a look in any run: powers of four and of ten. Training waits for each. */
const isMilestone = (step: number): boolean =>
  Number.isInteger(Math.log2(step) / 2) || /^10*$/.test(String(step));

/** What a step reports. What was not finite was kept as null. */
function stepEvent({ step, loss, gradNorm, learningRate, skipped, milliseconds }: StepMetrics) {
  const type = "step" as const;
  return {
    type,
    step,
    loss: loss ?? Number.NaN,
    gradNorm: gradNorm ?? Number.NaN,
    learningRate,
    skipped,
    milliseconds,
  };
}
