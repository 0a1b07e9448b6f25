import {
  ByteTokenizer,
  type Dataset,
  type Model,
  type PlanRow,
  type StepMetrics,
  type Trainer,
} from "tinyloom/worker";
import { grammarEntropy } from "../stories/entropy.ts";
import type { JudgedPiece } from "../stories/score.ts";
import type { Lab } from "./lab.ts";
import { type SampleOptions, sampleText } from "./sample.ts";
import { defaultPrompt, type RunSettings, validationFraction } from "./settings.ts";
import type { Text } from "./text.ts";

/** How often in a run the validation loss is taken and a sample is made. */
const EVALUATIONS = 25;
const SAMPLES = 10;
const SAMPLE_LENGTH = 140;
/** The part of the validation split that the curve uses, in steps' worth of tokens. */
const PROBE_STEPS = 4;

/** A part of a sample; text other than the stories has no verdict. */
export type SamplePiece = JudgedPiece | { text: string; verdict?: undefined };

/** What happens while a model trains, in this order after each step. */
export type TrainingEvent =
  | { type: "step"; step: number; loss: number; tokensPerSecond: number; skipped: boolean }
  | { type: "validation"; step: number; loss: number }
  | { type: "sample"; step: number; pieces: SamplePiece[] };

/** The text as the trainer sees it. */
interface Data {
  dataset: Dataset;
  /** The last part of the validation split, for the curve. */
  probe: Dataset;
}

/** One model in training with its text. */
export class Training {
  readonly settings: RunSettings;
  readonly text: Text;
  readonly model: Model;
  readonly trainer: Trainer;
  readonly #data: Data;

  private constructor(settings: RunSettings, text: Text, trainer: Trainer, data: Data) {
    this.settings = settings;
    this.text = text;
    this.trainer = trainer;
    this.model = trainer.model;
    this.#data = data;
  }

  /** Makes a model and its trainer. */
  static async create(lab: Lab, settings: RunSettings, text: Text): Promise<Training> {
    const { config, seed, tokensPerStep, learningRate, minLearningRate, steps } = settings;
    const model = await lab.Model.create(lab.runtime, config, { seed });
    return settled(model, async () => {
      const trainer = await lab.Trainer.create(model, {
        tokensPerStep,
        learningRate,
        totalSteps: steps,
        seed,
        ...(minLearningRate !== undefined && { minLearningRate }),
      });
      return new Training(settings, text, trainer, await datasets(lab, settings, text));
    });
  }

  /** Goes on from what `save` gave, on a text that may be another. */
  static async resume(
    lab: Lab,
    settings: RunSettings,
    text: Text,
    files: { readonly [name: string]: Blob },
  ): Promise<Training> {
    const trainer = await lab.Trainer.resume(lab.runtime, files);
    return settled(trainer.model, async () => {
      return new Training(settings, text, trainer, await datasets(lab, settings, text));
    });
  }

  /** Steps done. */
  get step(): number {
    return this.trainer.steps;
  }

  get finished(): boolean {
    return this.step >= this.settings.steps;
  }

  /** The lowest loss that any model can reach, in nats per byte; known for the stories only. */
  get entropy(): number | undefined {
    return this.text.judge && grammarEntropy().natsPerByte;
  }

  /** Bytes that the model learns from. */
  get trainBytes(): number {
    return this.#data.dataset.tokens - this.#data.dataset.validationTokens;
  }

  plan(): Promise<PlanRow[]> {
    return this.trainer.plan();
  }

  /** Trains until the planned steps are done. Leaving the loop stops after the current step. */
  async *run(): AsyncGenerator<TrainingEvent, void, undefined> {
    if (this.finished) return;
    const { trainer } = this;
    const speed = new Speed();
    const options = { until: this.settings.steps, dataChanged: true };
    for await (const metrics of trainer.run(this.#data.dataset, options)) {
      const { step, loss, skipped } = metrics;
      yield { type: "step", step, loss, skipped, tokensPerSecond: speed.add(metrics) };
      if (this.#due(EVALUATIONS)) {
        const validation = await trainer.evaluate(this.#data.probe);
        yield { type: "validation", step, loss: validation.loss };
      }
      if (this.#due(SAMPLES)) yield { type: "sample", step, pieces: await this.#sample() };
    }
  }

  /** Continues a prompt; the text comes as it is decoded. */
  write(prompt: string, options: Omit<SampleOptions, "context">) {
    const tokens = new ByteTokenizer().encode(prompt === "" ? "\n" : prompt);
    const context = this.settings.sequenceLength;
    return sampleText(this.model, tokens, { ...options, context });
  }

  /** Frees the GPU's memory. */
  async free(): Promise<void> {
    await this.model.free();
    await this.#data.dataset.free();
    await this.#data.probe.free();
  }

  #due(times: number): boolean {
    const { steps } = this.settings;
    return this.finished || this.step % Math.max(1, Math.floor(steps / times)) === 0;
  }

  async #sample(): Promise<SamplePiece[]> {
    const { temperature, seed } = this.settings;
    const { judge } = this.text;
    const options = { length: SAMPLE_LENGTH, temperature, seed: seed + this.step };
    let text = "";
    for await (const piece of this.write(defaultPrompt(judge !== undefined), options)) {
      text += piece;
    }
    return judge?.judge(text, true) ?? [{ text }];
  }
}

/** The text as two datasets. */
async function datasets(lab: Lab, settings: RunSettings, { bytes }: Text): Promise<Data> {
  const { sequenceLength, tokensPerStep, seed } = settings;
  const split = Math.floor(bytes.size * validationFraction);
  const kept = Math.min(split, Math.max(PROBE_STEPS * tokensPerStep, sequenceLength + 1));
  const load = (part: Blob, fraction: number) =>
    lab.Dataset.fromText(part, new ByteTokenizer(), {
      sequenceLength,
      validationFraction: fraction,
      seed,
    });
  return {
    dataset: await load(bytes, validationFraction),
    probe: await load(bytes.slice(-2 * kept), 0.5),
  };
}

/** What is made for a model. If that fails, the model is freed. */
async function settled<T>(model: Model, make: () => Promise<T>): Promise<T> {
  try {
    return await make();
  } catch (error) {
    await model.free();
    throw error;
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
