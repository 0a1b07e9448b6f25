/** What a model will take, computed without a GPU. */

import type { AdapterOptions } from "./adapter-types.js";
import type { With } from "./asked.js";
import { toError } from "./error.js";
import { type KvCache, kvCache, type WeightFormat, weights } from "./formats.js";
import { deferredPart, told } from "./lazy.js";
import { configJson, type ModelConfig } from "./model-config.js";
import { check, inspect, integer, invalid, object, type Rules, show } from "./options.js";
import { expectLimits } from "./runtime.js";
import type { Capabilities } from "./runtime-types.js";
import { TRAINER } from "./trainer-options.js";
import type { TrainerOptions } from "./trainer-types.js";
import { loadRaw } from "./wasm-instance.js";

/** A text that is generated, for {@link estimate}. */
export interface TextEstimate {
  /** Tokens of the prompt and of what is generated; default 256. */
  tokens?: number;
  /** Texts of {@link Model.generateBatch}, 2 to 256. Default 1, a text of {@link Model.generate}. Operations and milliseconds stay those of a token. */
  sequences?: number;
  /** As in {@link Model.generate}. */
  kvCache?: KvCache;
  /** As in {@link Model.generate}; default the model's own. */
  weights?: WeightFormat;
}

/** What {@link estimate} adds to the model's weights. */
export interface EstimateOptions {
  /** The format in which the model holds its matrices, as in {@link Model.fromPretrained}; default "f32". */
  weights?: WeightFormat;
  /** An adapter on the model: it is what the trainer trains, and generates with the model. */
  adapter?: AdapterOptions;
  /** A trainer with these options. */
  trainer?: TrainerOptions;
  /** A generated text. */
  generate?: TextEstimate;
}

/** What a model takes. */
export interface Estimate {
  /** Weights of the model. */
  readonly parameters: number;
  /** Weights that a trainer changes: the adapter's, those of the last layers, or else the model's. */
  readonly trainable: number;
  /** Bytes of GPU memory. */
  readonly bytes: {
    /** Weights, and their copies in other formats. */
    readonly weights: number;
    readonly gradients: number;
    /** The optimizer's moments. */
    readonly state: number;
    /** Activations, logits, batches and tables. */
    readonly activations: number;
    /** Keys and values. */
    readonly cache: number;
    readonly total: number;
  };
  /**
   * Bytes of a trainer's snapshots, from which it comes back after a lost device: GPU memory while one is
   * taken, to within 256 bytes for each tensor, and host memory at most. A snapshot holds the weights and
   * `bytes.state`. They are no part of `bytes`.
   */
  readonly snapshots?: { readonly gpu: number; readonly host: number };
  /**
   * Floating-point operations of an optimizer step on full batches, and of a generated token. A batch is
   * counted as one document: attention within shorter documents takes fewer.
   */
  readonly operations: PerPass;
  /**
   * Predicted milliseconds of the same, where capabilities were given. For an NVIDIA H200 and for
   * software adapters on two cores they are within a factor of two. WebGPU does not tell how fast other
   * GPUs are, so theirs are guesses by class.
   */
  readonly milliseconds?: PerPass;
}

/** Of a step where the options had a `trainer`, of a token where they had `generate`. */
interface PerPass {
  readonly step?: number;
  readonly token?: number;
}

type Passes<K extends keyof PerPass> = {
  readonly operations: With<PerPass, K>;
  readonly milliseconds?: With<PerPass, K>;
};

/** An {@link Estimate} with a trainer. */
export type StepEstimate = With<Estimate, "snapshots"> & Passes<"step">;
/** An {@link Estimate} with a text. */
export type TokenEstimate = Estimate & Passes<"token">;
/** An {@link Estimate} by what was told of the machine: with capabilities it has times. */
export type Timed<T extends Estimate, Told> = Told extends Capabilities
  ? With<T, "milliseconds">
  : T;

const OPTIONS: Rules<EstimateOptions> = {
  weights,
  adapter: object,
  trainer: object,
  generate: object,
};
const count = integer(1, 0xffff_ffff);
const TEXT: Rules<TextEstimate> = {
  tokens: count,
  sequences: integer(1, 256),
  kvCache,
  weights,
};

/**
 * What a model of this config takes before it is created: bytes by kind, operations and, with a runtime's
 * capabilities, times. Needs no GPU and no runtime. The first call loads the wasm module.
 *
 * @param options - without `adapter`, `trainer` or `generate` the weights alone are counted.
 * @param capabilities - `runtime.capabilities`, of this machine or kept from another; default WebGPU's
 * default limits. With those of the runtime, bytes equal what is then allocated.
 * @throws {@link TinyloomError} `invalid-config`, `invalid-options`, `limit-exceeded` where the model does
 * not fit the limits.
 *
 * @example
 * ```ts
 * const { bytes } = await estimate(config, { trainer: { tokensPerStep: 1024 } });
 * console.log(`${(bytes.total / 1e6).toFixed(0)} MB`);
 * ```
 */
export function estimate<Told extends Capabilities | undefined = undefined>(
  config: ModelConfig,
  options: EstimateOptions & { trainer: TrainerOptions; generate: TextEstimate },
  capabilities?: Told,
): Promise<Timed<StepEstimate & TokenEstimate, Told>>;
export function estimate<Told extends Capabilities | undefined = undefined>(
  config: ModelConfig,
  options: EstimateOptions & { trainer: TrainerOptions },
  capabilities?: Told,
): Promise<Timed<StepEstimate, Told>>;
export function estimate<Told extends Capabilities | undefined = undefined>(
  config: ModelConfig,
  options: EstimateOptions & { generate: TextEstimate },
  capabilities?: Told,
): Promise<Timed<TokenEstimate, Told>>;
export function estimate<Told extends Capabilities | undefined = undefined>(
  config: ModelConfig,
  options?: EstimateOptions,
  capabilities?: Told,
): Promise<Timed<Estimate, Told>>;
export async function estimate(
  config: ModelConfig,
  options: EstimateOptions = {},
  capabilities?: Capabilities,
): Promise<Estimate> {
  const { adapter, trainer, generate, weights } = await told(() =>
    check("estimate", options, OPTIONS),
  );
  const json = configJson("estimate", config);
  const chosen = JSON.stringify({
    weights,
    adapter: adapter && (await deferredPart()).adapterOptions("estimate: adapter", adapter),
    trainer: trainer && (await told(() => check("estimate: trainer", trainer, TRAINER))),
    generate: generate && (await told(() => check("estimate: generate", generate, TEXT))),
  });
  const able = capabilities === undefined ? undefined : capabilitiesJson(capabilities);
  const module = await loadRaw();
  const made = module.guarded(() => module.RawModel.estimate(json, chosen, able));
  const { bytes, ...rest } = JSON.parse(
    await made.catch((error: unknown) => {
      const known = toError(error);
      const [, what] = /^capabilities options: (.*) at line/.exec(known.message) ?? [];
      throw what ? wrong(what, known) : known;
    }),
  ) as Estimate;
  const total = Object.values(bytes).reduce((sum, one) => sum + one);
  const copied = adapter ? rest.trainable : rest.parameters;
  const gpu = 4 * copied + bytes.state;
  const snapshots = trainer && { snapshots: { gpu, host: 2 * gpu } };
  return { ...rest, ...snapshots, bytes: { ...bytes, total } };
}

function capabilitiesJson(given: Capabilities): string {
  return inspect("estimate: capabilities", () => {
    const text = !object(given) && given.limits && JSON.stringify(given);
    if (!text) throw wrong(`it is ${show(given)}`);
    expectLimits("estimate: capabilities", given.limits);
    return text;
  });
}

const wrong = (what: string, cause?: unknown) =>
  invalid(
    `estimate: capabilities: ${what}; give all of runtime.capabilities, or leave it out`,
    undefined,
    cause,
  );
