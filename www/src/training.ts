import type { Model, PlanRow, StepMetrics, StoredRun, Trainer } from "tinyloom/worker";
import { grammarEntropy } from "../stories/entropy.ts";
import type { JudgedPiece } from "../stories/score.ts";
import { type Data, freeData } from "./data.ts";
import type { Score } from "./exam.ts";
import { Examiner } from "./examiner.ts";
import { Keeper } from "./keeper.ts";
import { type SampleOptions, sampleText } from "./sample.ts";
import { defaultPrompt, type RunSettings } from "./settings.ts";
import type { KeptSample, Shelf } from "./shelf.ts";
import { type AnsweredPiece, answered } from "./tasks/answers.ts";
import { type TaskName, tasks } from "./tasks/index.ts";
import { END } from "./tasks/task.ts";
import type { Text } from "./text.ts";

/** How often in a run the validation loss is taken and a sample is made. */
const EVALUATIONS = 25;
const SAMPLES = 10;
const SAMPLE_LENGTH = 140;
/** The most letters of an answer. */
const ANSWER_LENGTH = 10;
/** Past steps that are shown before the page gets its turn. */
const PIECE = 500;

/** A part of a sample; text other than stories and answers has no verdict. */
export type SamplePiece = JudgedPiece | AnsweredPiece | { text: string; verdict?: undefined };

/** What happens while a model trains, in this order after each step. */
export type TrainingEvent =
  | { type: "step"; step: number; loss: number; skipped: boolean; tokensPerSecond?: number }
  | { type: "validation"; step: number; loss: number }
  | { type: "sample"; step: number; pieces: SamplePiece[] }
  /** How well the model does what it is taught. */
  | { type: "score"; step: number; score: Score }
  /** The storage is full: from now on the run is in memory. */
  | { type: "full" };

/** What a training is made of. */
export interface Parts {
  settings: RunSettings;
  text: Text;
  data: Data;
  trainer: Trainer;
  run: StoredRun;
}

/** One model in training with its text, kept in a run. */
export class Training {
  readonly settings: RunSettings;
  readonly text: Text;
  readonly model: Model;
  readonly #trainer: Trainer;
  readonly #data: Data;
  readonly #keeper: Keeper;
  readonly #examiner: Examiner;
  #halt = false;
  /** The step after which the last sample was made. */
  #sampled = -1;

  private constructor({ settings, text, trainer, data }: Parts, keeper: Keeper) {
    this.settings = settings;
    this.text = text;
    this.model = trainer.model;
    this.#trainer = trainer;
    this.#data = data;
    this.#keeper = keeper;
    this.#examiner = new Examiner(this.model, data, settings.sequenceLength);
  }

  static async of(shelf: Shelf, parts: Parts): Promise<Training> {
    return new Training(parts, await Keeper.of(shelf, parts.trainer, parts.run));
  }

  /** The run that it is kept in. */
  get run(): StoredRun {
    return this.#keeper.run;
  }

  /** Whether that ends with the page. */
  get inMemory(): boolean {
    return this.#keeper.inMemory;
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

  /** What its score counts. */
  get scores(): "problems" | "sentences" | "guesses" {
    if (this.task) return "problems";
    return this.text.judge ? "sentences" : "guesses";
  }

  /** The vocabulary. */
  get words(): number {
    return this.settings.config.vocab_size ?? 256;
  }

  /**
   * The lowest loss that any model can reach, in nats per byte, where it is known: the grammar's own entropy, and 0
   * for problems, since each has one right answer.
   */
  get entropy(): number | undefined {
    if (this.task) return 0;
    return this.text.judge && this.ofBytes ? grammarEntropy().natsPerByte : undefined;
  }

  /** Tokens that the model learns from. */
  get trainTokens(): number {
    return this.#data.dataset.tokens - this.#data.dataset.validationTokens;
  }

  plan(): Promise<PlanRow[]> {
    return this.#trainer.plan();
  }

  /** What happened up to this step, from the run. */
  async *past(): AsyncGenerator<TrainingEvent, void, undefined> {
    const metrics = (await this.run.metrics()) as StepMetrics[];
    for (const [at, { step, loss, skipped, validationLoss }] of metrics.entries()) {
      if (step > this.step) break;
      if (at % PIECE === PIECE - 1) await new Promise((turn) => setTimeout(turn));
      yield { type: "step", step, loss: loss ?? Number.NaN, skipped };
      if (validationLoss !== undefined) yield { type: "validation", step, loss: validationLoss };
    }
    const samples = (await this.run.samples()) as KeptSample[];
    // A step that was done twice is there twice.
    const texts = new Map<number, string>();
    for (const { step, text, score } of samples) {
      if (step > this.step) continue;
      if (text !== undefined) texts.set(step, text);
      if (score) yield { type: "score", step, score };
    }
    for (const [step, text] of texts) {
      this.#sampled = step;
      yield { type: "sample", step, pieces: this.#judged(text) };
    }
  }

  /** Trains until the planned steps are done, or until `halt`; then keeps the model. */
  async *steps(): AsyncGenerator<TrainingEvent, void, undefined> {
    this.#halt = false;
    if (this.finished) return;
    const speed = new Speed();
    const { steps } = this.settings;
    for await (let metrics of this.#trainer.run(this.#data.dataset, { until: steps })) {
      const { step, loss, skipped } = metrics;
      yield { type: "step", step, loss, skipped, tokensPerSecond: speed.add(metrics) };
      if (this.#due(EVALUATIONS)) {
        const validation = await this.#trainer.evaluate(this.#data.probe);
        yield { type: "validation", step, loss: validation.loss };
        metrics = { ...metrics, validationLoss: validation.loss };
      }
      await this.#keeper.note(metrics);
      if (this.#due(SAMPLES)) yield* this.sample();
      if (this.#examiner.due) yield* this.score();
      yield* this.#keep(() => this.#keeper.saveIfDue());
      if (this.#halt) break;
    }
    yield* this.keep();
  }

  /** Ends `steps` after the current one. */
  halt(): void {
    this.#halt = true;
  }

  /** A sample of the model as it is, unless there is one of this step. */
  async *sample(): AsyncGenerator<TrainingEvent, void, undefined> {
    if (this.#sampled === this.step) return;
    this.#sampled = this.step;
    const { temperature, seed } = this.settings;
    const { step } = this;
    const options = { length: SAMPLE_LENGTH, temperature, seed: seed + step };
    let text = "";
    if (this.task) text = await this.#answers(tasks[this.task].shown);
    else {
      const prompt = defaultPrompt(this.text.judge !== undefined);
      for await (const piece of this.write(prompt, options)) text += piece;
    }
    await this.#keeper.sample({ step, text });
    const pieces = this.#judged(text);
    yield { type: "sample", step, pieces };
    const score = this.#examiner.ofSentences(pieces);
    if (score) yield* this.#scored(step, score);
  }

  /** How well the model does as it is; nothing for the stories, whose sentences are counted with each sample. */
  async *score(): AsyncGenerator<TrainingEvent, void, undefined> {
    const { step } = this;
    const score = await this.#examiner.ask(step);
    if (score) yield* this.#scored(step, score);
  }

  async *#scored(step: number, score: Score): AsyncGenerator<TrainingEvent, void, undefined> {
    await this.#keeper.sample({ step, score });
    yield { type: "score", step, score };
  }

  /** Prompts of the task with what the model answers at temperature 0, one a line. */
  async #answers(prompts: readonly string[]): Promise<string> {
    const lines: string[] = [];
    for (const prompt of prompts) {
      let line = prompt + tasks[this.task!].mark;
      const options = { length: ANSWER_LENGTH, temperature: 0, seed: 0 };
      for await (const piece of this.write(line, options)) line += piece;
      lines.push(line);
    }
    return lines.join("\n");
  }

  /** Keeps the model of this step. */
  keep(): AsyncGenerator<TrainingEvent, void, undefined> {
    return this.#keep(() => this.#keeper.save());
  }

  /** Keeps the model soon: the page may be about to end. */
  hurry(): void {
    this.#keeper.hurry();
  }

  /** Continues a prompt; the text comes as it is decoded. */
  async *write(prompt: string, options: Omit<SampleOptions, "context">) {
    const { codec } = this.#data;
    const tokens = await codec.encode(prompt === "" ? "\n" : prompt);
    const context = this.settings.sequenceLength;
    const stop = this.task && { stopTokens: [END] };
    yield* sampleText(this.model, tokens, await codec.decoder(), { ...options, ...stop, context });
  }

  /** Frees the GPU's memory, and lets other tabs open the run. */
  async free(): Promise<void> {
    await this.run.close();
    await this.model.free();
    await freeData(this.#data);
  }

  async *#keep(save: () => Promise<void>): AsyncGenerator<TrainingEvent, void, undefined> {
    const before = this.inMemory;
    await save();
    if (this.inMemory && !before) yield { type: "full" };
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

/** Tokens per second over the last steps, without the time of evaluations and samples. */
class Speed {
  #tokens = 0;
  #milliseconds = 0;

  add({ tokens, milliseconds }: StepMetrics): number {
    // The past fades by a tenth each step, and the first step (it compiles) is soon forgotten.
    this.#tokens = this.#tokens * 0.9 + tokens;
    this.#milliseconds = this.#milliseconds * 0.9 + milliseconds;
    return (this.#tokens * 1000) / this.#milliseconds;
  }
}
