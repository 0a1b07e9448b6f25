/** A model that is taught by hand: an adapter on it learns which of its own samples a visitor likes. */
import { distill, grpo, kto } from "tinyloom/align";
import type { Adapter, Dataset, Model, Trainer } from "tinyloom/worker";
import type { Codec } from "../data.ts";
import type { Lab } from "../lab.ts";
import { endOf, firstUnit, type Unit } from "./beginnings.ts";
import type { Rule } from "./rules.ts";

/** The most tokens of a sample. */
const LONGEST = 80;
/** Weights of the adapter: few, so that few marks do not become the whole model. */
const RANK = 8;
/** Texts of a step, both of marks and of what a reward judges. */
const TEXTS = 8;
/** How marks are learned, and how rewards are; decisions/072-teaching-by-hand.md. */
const MARKS = { rate: 0.006, steps: 15, beta: 0.5 };
const REWARDS = { rate: 0.002, steps: 30, klCoefficient: 0.4 };

/** A sample, as the model has written it after a beginning. */
export interface Written {
  readonly beginning: string;
  readonly prompt: readonly number[];
  /** What it has written, with its end where that came. */
  readonly text: string;
  readonly tokens: readonly number[];
}

export interface Marked extends Written {
  readonly good: boolean;
}

/** What is taught, on what. */
export interface Taught {
  readonly lab: Lab;
  readonly codec: Codec;
  readonly unit: Unit;
  /** What the model has learned from: it is held to what it says of that. */
  readonly dataset: Dataset;
  /** The most tokens that the model sees at once. */
  readonly context: number;
  readonly seed: number;
}

/** A step of it. */
export interface TeachStep {
  readonly step: number;
  readonly steps: number;
  /** The share of wanted samples among those of this step, where a rule judges them. */
  readonly wanted?: number;
}

/** The share of samples that a rule holds for. */
export const shareOf = (samples: readonly Written[], rule: Rule): number =>
  samples.filter(({ text }) => rule.holds(text)).length / Math.max(1, samples.length);

export class Teaching {
  readonly #taught: Taught;
  readonly #model: Model;
  readonly #adapter: Adapter;
  #trainer: Trainer | undefined;
  #rate = 0;
  #step = 0;

  private constructor(taught: Taught, model: Model, adapter: Adapter) {
    this.#taught = taught;
    this.#model = model;
    this.#adapter = adapter;
  }

  /** Takes a model, which is freed with it, and puts a new adapter on it. If that fails, nothing is left of either. */
  static async begin(taught: Taught, model: Model): Promise<Teaching> {
    try {
      const { seed } = taught;
      const adapter = await taught.lab.Adapter.create(model, { rank: RANK, alpha: 2 * RANK, seed });
      return new Teaching(taught, model, adapter);
    } catch (error) {
      await model.free();
      throw error;
    }
  }

  /** Steps done. */
  get step(): number {
    return this.#step;
  }

  /** A trainer of this rate. One of another rate ends. */
  async #trains(rate: number): Promise<Trainer> {
    if (this.#trainer && this.#rate === rate) return this.#trainer;
    await this.#trainer?.free();
    this.#trainer = undefined;
    const { lab, context, seed } = this.#taught;
    this.#trainer = await lab.Trainer.create(this.#adapter, {
      learningRate: rate,
      schedule: "constant",
      tokensPerStep: TEXTS * context,
      seed,
    });
    this.#rate = rate;
    return this.#trainer;
  }

  /** A sample after each beginning; the same seed gives the same. */
  async write(
    beginnings: readonly string[],
    { adapted, seed, signal }: { adapted: boolean; seed: number; signal?: AbortSignal | undefined },
  ): Promise<Written[]> {
    const { codec, unit } = this.#taught;
    const [end] = await codec.encode(endOf(unit));
    const prompts = await Promise.all(beginnings.map((text) => this.#prompt(text)));
    const drawn = prompts.map((): number[] => []);
    const maxTokens = this.#most;
    const asked = prompts.map((prompt, at) => ({ prompt, seed: (seed + at) >>> 0 }));
    const written = this.#model.generateBatch(asked, {
      maxTokens,
      temperature: 1,
      stopTokens: [end!],
      ...(adapted && { adapter: this.#adapter }),
      ...(signal && { signal }),
    });
    for await (const { index, token } of written) drawn[index]!.push(token);
    return Promise.all(
      drawn.map(async (ids, at) => {
        const all = ids.length < maxTokens ? [...ids, end!] : ids;
        const own = { beginning: beginnings[at]!, prompt: prompts[at]! };
        return { ...own, ...(await this.#cut(all)) };
      }),
    );
  }

  /**
   * Learns from marks by KTO. Behind each step of that comes one that holds the model to what it said of its own text,
   * so that it goes on to write as it has learned.
   */
  async *learn(marks: readonly Marked[], signal?: AbortSignal): AsyncGenerator<TeachStep> {
    const { rate, steps, beta } = MARKS;
    const trainer = await this.#trains(rate);
    const texts = alternating(marks).map(({ prompt, tokens, good }) => ({
      prompt,
      completion: tokens,
      desirable: good,
    }));
    const textsPerStep = Math.min(TEXTS, texts.length);
    const one = { steps: 1, ...(signal && { signal }) };
    const learned = { ...one, beta, textsPerStep };
    const held = { ...one, share: 1, temperature: 1 };
    for (let step = 1; step <= steps; step++) {
      // `kto` starts at the text that the trainer's step count points to. Steps of distillation count too, so that it
      // would skip texts. Each call gets only the texts of its step.
      const own = Array.from({ length: textsPerStep }, (_, at) => {
        return texts[((step - 1) * textsPerStep + at) % texts.length]!;
      });
      for await (const _ of kto(trainer, own, learned)) this.#step++;
      for await (const _ of distill(trainer, this.#model, this.#taught.dataset, held)) this.#step++;
      yield { step, steps };
    }
  }

  /** Learns what a rule rewards by GRPO, from samples of its own. */
  async *reward(
    rule: Rule,
    beginnings: readonly string[],
    signal?: AbortSignal,
  ): AsyncGenerator<TeachStep> {
    const { rate, steps, klCoefficient } = REWARDS;
    const trainer = await this.#trains(rate);
    const { codec, unit } = this.#taught;
    const [end] = await codec.encode(endOf(unit));
    const prompts = await Promise.all(beginnings.map((text) => this.#prompt(text)));
    const options = {
      // What goes on after another end has not been judged: it is worth nothing.
      reward: async ({ tokens }: { tokens: Uint32Array }) => {
        const first = await this.#cut([...tokens]);
        return Number(first.tokens.length === tokens.length && rule.holds(first.text));
      },
      group: TEXTS,
      maxTokens: this.#most,
      stopToken: end!,
      klCoefficient,
      steps,
      ...(signal && { signal }),
    };
    let step = 0;
    for await (const { reward } of grpo(trainer, prompts, options)) {
      this.#step++;
      yield { step: ++step, steps, wanted: reward };
    }
  }

  /** The adapter as PEFT has it, in a zip. */
  async save(): Promise<Blob> {
    const { zip } = await import("tinyloom/storage");
    return zip(await this.#adapter.save());
  }

  /** Frees the model, its adapter and its trainer. */
  async free(): Promise<void> {
    await this.#model.free();
  }

  /** Tokens of a sample at most: any beginning fits before any sample, as KTO puts them together. */
  get #most(): number {
    return Math.min(LONGEST, this.#taught.context >> 1);
  }

  /** A beginning's tokens: the last ones, where the model sees too few. */
  async #prompt(beginning: string): Promise<number[]> {
    const tokens = await this.#taught.codec.encode(beginning);
    return [...tokens].slice(-(this.#taught.context >> 1));
  }

  /** Tokens up to the end of the first unit of their text. */
  async #cut(tokens: readonly number[]): Promise<{ text: string; tokens: number[] }> {
    const decoder = await this.#taught.codec.decoder();
    let text = "";
    for (const [at, token] of tokens.entries()) {
      text += await decoder.push(token);
      const first = firstUnit(text, this.#taught.unit);
      if (first.whole) return { text: first.text, tokens: tokens.slice(0, at + 1) };
    }
    text += await decoder.end();
    return { text, tokens: [...tokens] };
  }
}

/** Good and bad marks in turns, so that each step has both; the fewer ones come again. */
function alternating(marks: readonly Marked[]): Marked[] {
  const good = marks.filter((mark) => mark.good);
  const bad = marks.filter((mark) => !mark.good);
  const most = Math.max(good.length, bad.length);
  if (good.length === 0 || bad.length === 0) return [...marks];
  return Array.from({ length: most }, (_, at) => [
    good[at % good.length]!,
    bad[at % bad.length]!,
  ]).flat();
}
