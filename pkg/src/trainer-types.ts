/** The shapes of data that a trainer takes and gives. */

import type { ModelFiles } from "./model-types.js";
import type { OptimizerNumbers, OptimizerOptions } from "./optimizers.js";
import type { LongOptions } from "./progress.js";
import type { RunHandle } from "./save-types.js";
import type { TokenIds } from "./tokens.js";

/** Options of `Trainer.create`. All have good defaults. */
export interface TrainerOptions extends OptimizerOptions {
  /**
   * How the learning rate falls after warm-up; default `"cosine"`. The rate stays constant until the
   * length of the schedule is known.
   */
  schedule?: "constant" | "linear" | "cosine";
  /** Steps over which the rate rises linearly; the last of them has the peak rate. Default 20. */
  warmupSteps?: number;
  /**
   * Length of the schedule in steps. By default the schedule ends at the farthest step that a `run` was
   * asked for. A `run` that made no step does not count.
   */
  totalSteps?: number;
  /** The rate at the end of the schedule; default a tenth of `learningRate`. */
  minLearningRate?: number;
  /** Gradients with a larger global norm are scaled down to this norm; default 1, null for no clipping. */
  maxGradNorm?: number | null;
  /** How many micro-steps make one optimizer step; default 1. */
  gradientAccumulation?: number;
  /** The most tokens in a step, or in a micro-step. Activations are allocated for them. Default 1024. */
  tokensPerStep?: number;
  /**
   * Computes activations again in the backward pass instead of keeping those of all layers. The losses
   * stay the same to the bit. Arithmetic grows by up to a quarter. Default false.
   */
  recompute?: boolean;
  /**
   * With `"mixed"`, matrix products read the weights in f16, from a copy that each step writes. On a GPU with
   * subgroup matrices they also round activations and their gradients to f16, and what only products read is stored
   * so. Sums, gradients of weights and the weights themselves stay f32, and so do moments that are not in 8 bits.
   * Default `"f32"`.
   */
  precision?: "f32" | "mixed";
  /**
   * Trains only this number of last layers, with the final norm and an `lm_head` of its own. The rest has
   * neither gradients nor optimizer state, and no backward pass. Default null: everything. An adapter's
   * `targets` say what of it is trained.
   */
  lastLayers?: number | null;
  /**
   * Label smoothing, as PyTorch's `cross_entropy` has it: this share of each target's probability is spread over
   * the vocabulary. Training alone uses it. Default 0.
   */
  labelSmoothing?: number;
  /**
   * Adds this number times the square of the logits' logsumexp to the loss of each target, so that logits do not
   * drift. Training alone uses it. Default 0; 1e-4 is usual.
   */
  zLoss?: number;
  /**
   * The share that each step leaves out at random: one number for all three places, or a number for each. It stands
   * in for the rates of the model's config (`attn_pdrop` of GPT-2 and its like), which are the default. Evaluations
   * and generations leave out nothing. An adapter has a `dropout` of its own besides.
   */
  dropout?: number | DropoutRates;
  /**
   * Keeps an exponential moving average of what is trained: how much of it a step keeps, such as 0.999. It begins as
   * the weights are. `evaluate({ averaged: true })` and `saveAveraged` use it. It takes 4 bytes per trained weight.
   * Default null: none.
   */
  ema?: number | null;
  /**
   * Seed of the order in which `run` draws documents, together with the dataset's own, and of the masks of
   * dropout; an unsigned 32-bit number, default 0.
   */
  seed?: number;
}

/** Shares of a model that a training step leaves out, each at least 0 and below 1. */
export interface DropoutRates {
  /** Of the elements of embeddings. */
  embedding?: number;
  /** Of the keys that each query attends to. */
  attention?: number;
  /** Of the elements of what attention and the feed-forward block of a layer add. */
  residual?: number;
}

/**
 * A trainer's options in force, every default filled in. Of the optimizers' numbers those are there that the
 * optimizer has.
 */
export interface ResolvedTrainerOptions
  extends Readonly<
      Required<Omit<TrainerOptions, "totalSteps" | keyof OptimizerNumbers | "dropout">>
    >,
    Readonly<OptimizerNumbers> {
  /**
   * The length of the schedule: as given, or the farthest step that a run was asked for. Null while neither is
   * known. Only one that was given ends a run.
   */
  readonly totalSteps: number | null;
  /** Those of the options, else of the model's config. */
  readonly dropout: Readonly<Required<DropoutRates>>;
}

/** How the learning rate goes: up over the warm-up steps, then as `kind` says to its end. */
export interface Schedule {
  readonly kind: "constant" | "linear" | "cosine";
  /** The peak. */
  readonly learningRate: number;
  readonly warmupSteps: number;
  /** Steps in all, or null while that is not known: the rate then stays at its peak. */
  readonly totalSteps: number | null;
  /** The rate at the end and after it. */
  readonly minLearningRate: number;
}

/** One batch: a row of tokens, possibly of several documents. */
export interface Batch {
  /** Token ids, 1 to `tokensPerStep`. */
  tokens: TokenIds;
  /** The correct next id of each position; a position with 0xffffffff is left out of the loss. */
  targets: TokenIds;
  /** The index at which each position's document starts; by default the batch is one document. */
  documents?: TokenIds;
  /**
   * A signed weight of each position's loss; by default all 1. The step minimises Σ weight · loss / N. A weight of 0 leaves
   * its position out, as an ignored target does, but counts in N. Weights of 1 are none, to the bit.
   */
  targetWeights?: Float32Array | readonly number[];
  /**
   * N: `"targets"`, the default, is how many targets are not ignored; `"weights"` the sum of their weights' absolute values;
   * a number holds for the whole step. With accumulation N is that of all micro-steps, which must ask for the same.
   */
  normalize?: "targets" | "weights" | number;
  /** Divides the logits of the loss, from 1e-6 to 1e6; default 1. */
  temperature?: number;
  /** Probabilities of a teacher, beside the targets. */
  soft?: SoftTargets;
}

/**
 * What a teacher says of each position. Its divergence from the student, times the square of the temperature, stands
 * beside the loss of the target, with the position's weight.
 */
export interface SoftTargets {
  /** 1 to 64 ids for each position, as many for each; 0xffffffff where there is none. */
  ids: TokenIds;
  /** The teacher's probability of each, at the temperature. */
  probabilities: Float32Array | readonly number[];
  /** `"forward"`, the default, is KL(teacher ‖ student), `"reverse"` KL(student ‖ teacher). */
  direction?: "forward" | "reverse";
  /**
   * With `"class"`, the default, what the ids leave over is one further class of both; with `"renormalize"` both are
   * renormalised over the ids.
   */
  rest?: "class" | "renormalize";
  /** The share of the divergence; the loss of the target has the rest. Default 1: the divergence alone. */
  share?: number;
  /** Divides the student's logits here; default the batch's `temperature`. */
  temperature?: number;
}

/** A batch whose loss a function of the caller's computes. */
export interface GradientBatch {
  /** Token ids, 1 to `tokensPerStep`. */
  tokens: TokenIds;
  documents?: TokenIds;
  /**
   * Is given the logits of some rows at a time, in order, and gives their gradient, in the same order, and their loss. After
   * a lost device it is called again. Through a worker it runs in the page. Another call of the same model waits for the
   * step: the function must not await one.
   */
  gradient: (rows: GradientRows) => StepGradient | Promise<StepGradient>;
  gradientBy?: "logits";
  /** What the sums of gradients and losses are divided by; default 1. */
  normalize?: number;
}

/** A batch whose loss a function of the caller's computes from states: the head is left as it is. */
export interface StateGradientBatch extends Omit<GradientBatch, "gradient" | "gradientBy"> {
  /** Is given the states of all rows at once, and gives the derivative of its loss by each number, and the loss. */
  gradient: (rows: StateRows) => StepGradient | Promise<StepGradient>;
  gradientBy: "states";
}

/** Logits of some rows of a batch. */
export interface GradientRows {
  /** `rows × vocabulary` numbers. */
  readonly logits: Float32Array;
  /** The position of the first row. */
  readonly first: number;
  readonly rows: number;
  readonly vocabulary: number;
}

/** States of a batch: after the last layer and the final norm, where the head reads them. */
export interface StateRows {
  /** `rows × hidden` numbers. */
  readonly states: Float32Array;
  /** 0: there is one call for all rows. */
  readonly first: number;
  readonly rows: number;
  readonly hidden: number;
}

/** What a gradient function gives of its rows. */
export interface StepGradient {
  /**
   * The derivative of the loss by each number that it was given. It may be a buffer of f32 on `runtime.device` with usage
   * `COPY_SRC`, such as {@link Tensor.buffer}, of at least as many numbers. It is copied once the promise has settled; not
   * through a worker, and not of a model that caps its logits.
   */
  gradient: Float32Array | readonly number[] | GPUBuffer;
  /** The sum over the rows. */
  loss: number;
}

/** How a trainer came back from a lost device. */
export interface Recovered {
  /** The step of the snapshot: those after it were done again. */
  readonly fromStep: number;
  /** What the browser said of the loss. */
  readonly reason: string;
  /** Milliseconds from the loss of the device until the trainer stood where it was. */
  readonly milliseconds: number;
}

/** What a step reports. */
export interface StepMetrics {
  /** Optimizer steps done, counting this one. */
  readonly step: number;
  /**
   * The mean in nats per token of what is minimised: cross-entropy, with `labelSmoothing` and `zLoss` in it. Of the
   * whole step, or of a micro-step that is not the last. With `targetWeights` it is the weighted sum over N.
   */
  readonly loss: number;
  /** Global norm of the averaged gradient, before clipping; NaN before the last micro-step. */
  readonly gradNorm: number;
  /** The rate this step used. */
  readonly learningRate: number;
  /** Tokens in all micro-steps of the step. For `step()`: the tokens of its batch. */
  readonly tokens: number;
  /** The share of the places for tokens in the same micro-steps, `tokensPerStep` in each, that no token took. */
  readonly unfilled: number;
  /**
   * Documents of the dataset of which the step read a piece and not the whole, since they are longer than
   * `sequenceLength` or `tokensPerStep`; each counts once in a step. 0 of one text, and for `step()`.
   */
  readonly cut: number;
  /** Wall time of the same tokens, until these metrics were there. The GPU may still update the weights then. */
  readonly milliseconds: number;
  /** Whether the update was left out because the loss or the norm was not finite. */
  readonly skipped: boolean;
  /** Cross-entropy alone on the validation split; present at the steps after which `run` evaluated. */
  readonly validationLoss?: number;
  /** Present at the first step given out after the GPU device was lost and the trainer came back. */
  readonly recovered?: Recovered;
}

/** Where and when `Trainer.run` saves. */
export interface CheckpointOptions {
  /** An open run of `tinyloom/storage`. It also keeps the metrics of every step. */
  run: RunHandle;
  /** Saves at each multiple of this number of the trainer's steps, and at the run's last step; default 100. */
  every?: number;
  /**
   * How many whole checkpoints of trainers are kept, and as many of models alone. Default: as many as the
   * run was last asked to keep, at first 2. With 1 a damaged one leaves none.
   */
  keep?: number;
  /**
   * Keeps the checkpoint with the least `validationLoss` too: each evaluation that finds a smaller one saves.
   * `run.best()` gives its files. A best checkpoint of before counts on where the same data are evaluated. It needs
   * `evaluateEvery`. Default false.
   */
  keepBest?: boolean;
  /**
   * Saves also where the signal ends the run or its loop is left before its end, unless no step was done since the
   * last save. The promise of the abort settles when the checkpoint is whole. Default false.
   */
  onAbort?: boolean;
}

/** Options of `Trainer.findLearningRate`. */
export interface RateOptions {
  /** The rate of the first step; default 1e-6. */
  from?: number;
  /** The rate of the last step; default 1. The search ends before it where the loss has grown to four times its least. */
  to?: number;
  /** Steps; default 100, at least 3. */
  steps?: number;
  /** How the copy is trained: what `Trainer.create` takes, but for the learning rate and its schedule. */
  trainer?: Omit<
    TrainerOptions,
    "learningRate" | "minLearningRate" | "schedule" | "warmupSteps" | "totalSteps"
  >;
}

/** A step of a search. */
export interface RatePoint {
  readonly learningRate: number;
  /** The loss before the step's update. */
  readonly loss: number;
  /** The mean of the losses so far, in which older ones count less. */
  readonly smoothed: number;
}

/** What `Trainer.findLearningRate` found. */
export interface RateSearch {
  /** The rate at which the mean of losses fell fastest; null where it never fell. */
  readonly learningRate: number | null;
  /** The steps, in order. */
  readonly points: readonly RatePoint[];
}

/** Options of `Trainer.evaluate`. */
export interface EvaluateOptions extends LongOptions {
  /** Evaluates the average of weights that `ema` keeps; default false. */
  averaged?: boolean;
  /** Evaluates on all of the dataset, and not on its validation split alone; default false. */
  all?: boolean;
}

/** A loss on the validation split. */
export interface Evaluation {
  /** Mean cross-entropy in nats per token. */
  readonly loss: number;
  /** Tokens counted. */
  readonly tokens: number;
}

/** Files of `Trainer.save`. Those of an adapter's trainer have {@link AdapterFiles} instead of the model's. */
export interface TrainerFiles extends ModelFiles {
  "optimizer.safetensors": Uint8Array<ArrayBuffer>;
  "trainer_state.json": Uint8Array<ArrayBuffer>;
}

/** The part of the work that a dispatch belongs to. */
export type Phase = "forward" | "backward" | "optimizer" | "prefill" | "decode";

/** What a kernel binds at one index. */
export interface PlanBinding {
  /** The variable in the WGSL. */
  readonly name: string;
  readonly access: "read" | "read-write" | "uniform";
}

/** One dispatch of a step. */
export interface PlanRow {
  readonly phase: Phase;
  /** What it computes, such as `"layer 0 q, k, v"`. */
  readonly label: string;
  readonly kernel: string;
  readonly variant: string;
  /** Why this variant was chosen. */
  readonly reason: string;
  /** What the text is joined from, in order: files in `shaders/` without `.wgsl`, the last the kernel's own, or
   * functions in `crates/kernels/src/kernels/` that write loops out. */
  readonly modules: readonly string[];
  /** The binding at each index. */
  readonly bindings: readonly PlanBinding[];
  readonly workgroupSize: readonly number[];
  /** Workgroups in x, y and z. */
  readonly grid: readonly number[];
  /** Floating-point operations. */
  readonly flops: number;
  /** Bytes read and written. */
  readonly bytes: number;
}

/** One dispatch with its time on the GPU. */
export interface ProfileRow extends PlanRow {
  /** Absent without timestamps. In rows of the optimizer also absent before the first update. */
  readonly gpuMicroseconds?: number;
}
