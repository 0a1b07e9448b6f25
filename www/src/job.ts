/**
 * The headless main job: trains on a text's bytes, evaluates on its last tenth and decodes a sample. The same module
 * runs in a page (headless.ts) and in Node with Dawn, so it touches no DOM and takes the package as an argument.
 */
import type { Model, Runtime, Trainer } from "tinyloom";
import { type GrammarEntropy, grammarEntropy } from "../stories/entropy.ts";
import { scoreSample } from "../stories/score.ts";
import { adapterName } from "./adapter.ts";
import { presets } from "./presets.ts";
import { ByteStream, sampleTokens } from "./sample.ts";
import {
  defaultPrompt,
  type RunChoices,
  type RunSettings,
  resolveSettings,
  storiesFor,
  validationFraction,
} from "./settings.ts";

/** The built-in task's parts, for the benchmark. */
export { resolveSettings, storiesFor, validationFraction };

type Tinyloom = typeof import("tinyloom");

export interface JobOptions extends RunChoices {
  /** The text to train on; default: the built-in stories. */
  text?: string | Blob | undefined;
  /** What the sample continues. */
  prompt?: string | undefined;
  /** Bytes of the machine's memory: what a model on a software adapter has to fit. */
  memory?: number | undefined;
}

/** Either a stage that begins, or how far the training is. */
export type JobProgress =
  | { stage: string; step?: undefined }
  | { step: number; steps: number; loss: number; tokensPerSecond: number };

export interface JobResult {
  adapter: string;
  parameters: number;
  steps: number;
  /** Losses in nats per byte: of the first and last step, and over `validationTokens` of the text's last tenth. */
  firstLoss: number;
  finalLoss: number;
  validationLoss: number;
  validationTokens: number;
  /** After the first step, which compiles. */
  tokensPerSecond: number;
  sample: string;
  decodeTokensPerSecond: number;
  /** Of the built-in stories only: sampled sentences by the grammar, and its entropy. */
  sampledSentences?: number;
  grammaticalShare?: number;
  /** Of all sampled sentences, those that are grammatical and not in the training text. */
  novelShare?: number;
  /** How many of the sampled sentences `sample` shows. */
  shownSentences?: number;
  entropy?: GrammarEntropy;
}

/** For a weight, its gradient and two moments. */
const TRAINING_BYTES = 16;

/** The most tokens that are evaluated where the CPU computes; elsewhere it is the whole split. */
const SOFTWARE_EVALUATION = 24_576;

/** Sampling ends at the first count of bytes, or at the second once it took this many seconds. */
const SAMPLE_BYTES = 4096;
const SAMPLE_BYTES_SLOW = 1536;
const SAMPLE_SECONDS = 10;
/** Bytes of the sample that are handed back. */
const SHOWN_BYTES = 600;

export async function runJob(
  tinyloom: Tinyloom,
  gpu: GPU | undefined,
  options: JobOptions = {},
  onProgress: (progress: JobProgress) => void = () => {},
  signal?: AbortSignal,
): Promise<JobResult> {
  const runtime = await tinyloom.Runtime.create(gpu === undefined ? {} : { gpu });
  try {
    return await new Job(tinyloom, runtime, options, onProgress, signal).run();
  } finally {
    runtime.destroy();
  }
}

/** A number of bytes in words. */
function bytes(count: number): string {
  return count < 1e9 ? `${(count / 1e6).toFixed(1)} MB` : `${(count / 1e9).toFixed(1)} GB`;
}

class Job {
  readonly #tinyloom: Tinyloom;
  readonly #runtime: Runtime;
  readonly #options: JobOptions;
  readonly #onProgress: (progress: JobProgress) => void;
  readonly #signal: AbortSignal | undefined;
  readonly #settings: RunSettings;

  constructor(
    tinyloom: Tinyloom,
    runtime: Runtime,
    options: JobOptions,
    onProgress: (progress: JobProgress) => void,
    signal: AbortSignal | undefined,
  ) {
    this.#tinyloom = tinyloom;
    this.#runtime = runtime;
    this.#options = options;
    this.#onProgress = onProgress;
    this.#signal = signal;
    const settings = resolveSettings(options, runtime.capabilities);
    if (settings === undefined) {
      throw new tinyloom.TinyloomError(
        "invalid-options",
        `there is no preset "${options.config}"; give ${Object.keys(presets).join(", ")}, or a config object`,
      );
    }
    this.#settings = settings;
  }

  async run(): Promise<JobResult> {
    const { config, seed, steps, sequenceLength } = this.#settings;
    const { Model } = this.#tinyloom;
    const weights = Model.countParameters(this.#runtime, config);
    const size = `${weights.toLocaleString("en")} weights, ${bytes(TRAINING_BYTES * weights)} to train them`;
    this.#onProgress({
      stage: `${size} besides activations; ${steps} steps, sequences of ${sequenceLength} bytes`,
    });
    this.#fits(TRAINING_BYTES * weights, size);
    const text = await this.#text();
    const model = await Model.create(this.#runtime, config, { seed });
    const trainer = await this.#trainer(model);
    const training = await this.#train(trainer, text);
    this.#onProgress({ stage: "evaluating on the text's last tenth" });
    const validation = await this.#evaluate(trainer, text);
    this.#onProgress({ stage: "decoding a sample" });
    const sample = await this.#sample(model, text);
    return {
      adapter: adapterName(this.#runtime.capabilities),
      parameters: model.parameterCount,
      ...training,
      validationLoss: validation.loss,
      validationTokens: validation.tokens,
      ...sample,
    };
  }

  /** Refuses what a software adapter could not hold: there the system ends the process instead. */
  #fits(needed: number, size: string): void {
    const { memory } = this.#options;
    if (memory === undefined || needed <= memory || !this.#runtime.capabilities.software) return;
    throw new this.#tinyloom.TinyloomError(
      "out-of-memory",
      `${size}: more than this machine's ${bytes(memory)}, in which this adapter computes; give a smaller config`,
    );
  }

  async #text(): Promise<Uint32Array> {
    const { text } = this.#options;
    const tokenizer = new this.#tinyloom.ByteTokenizer();
    const content = text ?? storiesFor(this.#settings);
    const tokens = tokenizer.encode(
      typeof content === "string" ? content : new Uint8Array(await content.arrayBuffer()),
    );
    const least = Math.ceil((this.#settings.sequenceLength + 1) / validationFraction);
    if (tokens.length < least) {
      throw new this.#tinyloom.TinyloomError(
        "invalid-options",
        `the text has ${tokens.length} bytes; sequences of ${this.#settings.sequenceLength} need at least ${least}, ` +
          "so give a longer text or a smaller sequenceLength",
      );
    }
    return tokens;
  }

  #trainer(model: Model): Promise<Trainer> {
    const { tokensPerStep, learningRate, minLearningRate, steps, precision, seed } = this.#settings;
    return this.#tinyloom.Trainer.create(model, {
      learningRate,
      tokensPerStep,
      totalSteps: steps,
      seed,
      ...(minLearningRate !== undefined && { minLearningRate }),
      ...(precision && { precision }),
    });
  }

  async #train(trainer: Trainer, tokens: Uint32Array) {
    const { sequenceLength, steps, seed } = this.#settings;
    const dataset = this.#tinyloom.Dataset.fromTokens(tokens, {
      sequenceLength,
      validationFraction,
      seed,
    });
    let firstLoss = Number.NaN;
    let finalLoss = Number.NaN;
    let tokensPerSecond = 0;
    let began = performance.now();
    let trained = 0;
    for await (const m of trainer.run(dataset, {
      steps,
      ...(this.#signal && { signal: this.#signal }),
    })) {
      finalLoss = m.loss;
      if (m.step === 1) {
        // The first step compiles: it counts for the speed only in a run of one step.
        firstLoss = m.loss;
        tokensPerSecond = (m.tokens * 1000) / (performance.now() - began);
        began = performance.now();
      } else {
        trained += m.tokens;
        tokensPerSecond = (trained * 1000) / (performance.now() - began);
      }
      this.#onProgress({ step: m.step, steps, loss: m.loss, tokensPerSecond });
    }
    dataset.free();
    return { steps, firstLoss, finalLoss, tokensPerSecond };
  }

  async #evaluate(trainer: Trainer, tokens: Uint32Array) {
    const { sequenceLength, seed } = this.#settings;
    const split = Math.floor(tokens.length * validationFraction);
    const limit = this.#runtime.capabilities.software ? SOFTWARE_EVALUATION : split;
    const kept = Math.min(split, limit);
    // A text of twice the part, whose second half is the split: the trained-on part does not matter here.
    const dataset = this.#tinyloom.Dataset.fromTokens(tokens.subarray(-2 * kept), {
      sequenceLength,
      validationFraction: 0.5,
      seed,
    });
    const result = await trainer.evaluate(dataset, this.#signal ? { signal: this.#signal } : {});
    dataset.free();
    return result;
  }

  async #sample(model: Model, text: Uint32Array) {
    const { sequenceLength, temperature, seed } = this.#settings;
    const stories = this.#options.text === undefined;
    const prompt = this.#options.prompt || defaultPrompt(stories);
    const tokenizer = new this.#tinyloom.ByteTokenizer();
    const least = stories ? SAMPLE_BYTES_SLOW : SHOWN_BYTES;
    const most = stories ? SAMPLE_BYTES : SHOWN_BYTES;
    const stream = new ByteStream();
    const began = performance.now();
    const seconds = () => (performance.now() - began) / 1000;
    let sampled = "";
    let count = 0;
    for await (const { token } of sampleTokens(model, tokenizer.encode(prompt), {
      length: most,
      context: sequenceLength,
      temperature,
      seed,
      signal: this.#signal,
    })) {
      sampled += stream.push(token);
      if (++count >= least && seconds() > SAMPLE_SECONDS) break;
    }
    const decodeTokensPerSecond = count / seconds();
    sampled += stream.end();
    const shown = shorten(sampled, stories);
    const shownSentences = shown.match(/\./g)?.length ?? 0;
    const sample = this.#options.prompt ? this.#options.prompt + shown : shown.trim();
    if (!stories) return { sample, decodeTokensPerSecond };
    const score = scoreSample(sampled, tokenizer.decode(text), prompt === defaultPrompt(true));
    const { sentences, grammaticalShare, novelShare } = score;
    const entropy = grammarEntropy();
    return {
      sample,
      decodeTokensPerSecond,
      sampledSentences: sentences,
      grammaticalShare,
      novelShare,
      shownSentences,
      entropy,
    };
  }
}

/** The part of a sample to show; of the stories, whole sentences. */
function shorten(text: string, stories: boolean): string {
  const start = text.slice(0, SHOWN_BYTES);
  const end = start.lastIndexOf(".");
  return stories && end > 0 ? start.slice(0, end + 1) : start;
}
