/** An adapter in training on a model that stays as it is. */
import type { Adapter, Dataset, Model, StepMetrics, Trainer } from "tinyloom/worker";
import type { Lab } from "../lab.ts";
import type { Weave } from "../loom/weave.ts";
import type { BaseModel } from "./base-model.ts";
import type { Chat } from "./chats.ts";
import type { TuneSettings } from "./cost.ts";
import { answered, weaveOf } from "./weave.ts";

/** How often the loss of the chats kept for validation is taken. */
const EVALUATIONS = 10;
/** The most tokens of an answer. */
const ANSWER = 64;
/** Tokens of a chat at most; longer ones are cut. */
const LONGEST = 1024;
/** With fewer chats none is kept for validation. */
const FEW = 10;

/** The chats as a trainer sees them. */
export interface Reading {
  readonly base: BaseModel;
  readonly chats: readonly Chat[];
  readonly dataset: Dataset;
}

/** Reads the chats with the base's template and tokens. */
export async function readDataset(
  lab: Lab,
  base: BaseModel,
  chats: readonly Chat[],
  { signal, onProgress }: { signal: AbortSignal; onProgress(progress: { loaded: number }): void },
): Promise<Reading> {
  const made = (sequenceLength?: number) =>
    lab.Dataset.fromConversations(chats, base.codec.tokenizer, {
      template: base.template,
      validationFraction: chats.length < FEW ? 0 : 0.1,
      signal,
      onProgress,
      ...(sequenceLength !== undefined && { sequenceLength }),
    });
  // Without a length it is that of the longest chat.
  const whole = await made();
  const most = Math.min(LONGEST, base.context);
  if (whole.sequenceLength <= most) return { base, chats, dataset: whole };
  await whole.free();
  return { base, chats, dataset: await made(most) };
}

/** What happens while it trains. */
export type TuneEvent =
  | { readonly type: "step"; readonly metrics: StepMetrics }
  | { readonly type: "validation"; readonly step: number; readonly loss: number };

export class Tuning {
  readonly base: BaseModel;
  readonly settings: TuneSettings;
  readonly adapter: Adapter;
  readonly #lab: Lab;
  readonly #model: Model;
  readonly #trainer: Trainer;
  readonly #dataset: Dataset;
  #halt = false;

  private constructor(
    lab: Lab,
    { base, dataset }: Reading,
    settings: TuneSettings,
    parts: { model: Model; adapter: Adapter; trainer: Trainer },
  ) {
    this.base = base;
    this.settings = settings;
    this.adapter = parts.adapter;
    this.#lab = lab;
    this.#dataset = dataset;
    this.#model = parts.model;
    this.#trainer = parts.trainer;
  }

  /** Loads the base, and puts a new adapter on it. If that fails, nothing of it is left. */
  static async begin(
    lab: Lab,
    reading: Reading,
    settings: TuneSettings,
    signal: AbortSignal,
    onProgress: (progress: { loaded: number; total: number; stage: string }) => void,
  ): Promise<Tuning> {
    const model = await reading.base.load(settings.weights, signal, onProgress);
    try {
      const adapter = await lab.Adapter.create(model, { ...settings.adapter, signal });
      const { steps: totalSteps, tokensPerStep, learningRate } = settings;
      const warmupSteps = Math.min(20, Math.ceil(totalSteps / 10));
      const rates = { learningRate, totalSteps, warmupSteps };
      const { seed } = settings.adapter;
      const trainer = await lab.Trainer.create(adapter, { tokensPerStep, seed, ...rates, signal });
      return new Tuning(lab, reading, settings, { model, adapter, trainer });
    } catch (error) {
      await model.free();
      throw error;
    }
  }

  get step(): number {
    return this.#trainer.steps;
  }

  get finished(): boolean {
    return this.step >= this.settings.steps;
  }

  /** Weights of the adapter, and of the model under it. */
  get weights(): { adapter: number; base: number } {
    return { adapter: this.adapter.parameterCount, base: this.#model.parameterCount };
  }

  /** Trains until the planned steps are done, or until `halt`. */
  async *steps(): AsyncGenerator<TuneEvent, void, undefined> {
    this.#halt = false;
    const { steps } = this.settings;
    const every = Math.max(1, Math.floor(steps / EVALUATIONS));
    const judged = this.#dataset.validationTokens > 0;
    for await (const metrics of this.#trainer.run(this.#dataset, { until: steps })) {
      yield { type: "step", metrics };
      const { step } = metrics;
      if (judged && (step === 1 || step % every === 0 || step === steps)) {
        const { loss } = await this.#trainer.evaluate(this.#dataset);
        yield { type: "validation", step, loss };
      }
      if (this.#halt) break;
    }
  }

  /** Ends `steps` after the current one. */
  halt(): void {
    this.#halt = true;
  }

  /** The likeliest answer, as it is written: of the base alone, or with the adapter. */
  async *answer(
    chat: Chat,
    adapted: boolean,
    signal: AbortSignal,
  ): AsyncGenerator<string, void, undefined> {
    const { codec, template, context } = this.base;
    const { tokenizer, endToken } = codec;
    const prompt = await this.#lab.chatPrompt(chat, tokenizer, { template });
    const tokens = [...prompt.tokens].slice(1 - context);
    const options = {
      maxTokens: Math.min(ANSWER, context - tokens.length),
      temperature: 0,
      tokenizer,
      stop: prompt.stop,
      signal,
      ...(endToken !== undefined && { stopTokens: [endToken] }),
      ...(adapted && { adapter: this.adapter }),
    };
    for await (const { text = "" } of this.#model.generate(tokens, options)) yield text;
  }

  /** Some layers over a chat and the likeliest answer: of the base alone, or with the adapter. */
  async look(
    chat: Chat,
    adapted: boolean,
    layers: readonly number[],
    signal: AbortSignal,
  ): Promise<Weave> {
    const { codec, template, context } = this.base;
    const { tokenizer, endToken } = codec;
    const prompt = await this.#lab.chatPrompt(chat, tokenizer, { template });
    const options = { signal, ...(adapted && { adapter: this.adapter }) };
    const ends = {
      tokenizer,
      stop: prompt.stop,
      ...(endToken !== undefined && { stopTokens: [endToken] }),
    };
    const read = await answered(this.#model, [...prompt.tokens], context, { ...options, ...ends });
    return weaveOf(this.#model, codec, read, layers, options);
  }

  /** The adapter as PEFT has it, in a zip. */
  async save(): Promise<Blob> {
    const { zip } = await import("tinyloom/storage");
    return zip(await this.adapter.save());
  }

  /** Frees model, adapter and trainer. The dataset is the panel's. */
  async free(): Promise<void> {
    await this.#model.free();
  }
}
