/** The shapes of data that a trainer takes and gives. */

import type { ModelFiles } from "./model.js";
import type { TokenIds } from "./tokens.js";

/** Options of `Trainer.create`. All have good defaults. */
export interface TrainerOptions {
  /** Peak learning rate; default 1e-3. */
  learningRate?: number;
  /** How the rate falls after warm-up; default `"cosine"`, constant until the total is known. */
  schedule?: "constant" | "linear" | "cosine";
  /** Steps over which the rate rises in equal parts to its peak, which the last one has; default 20. */
  warmupSteps?: number;
  /**
   * Length of the schedule in steps; default: up to the farthest step that a `run` which made steps was
   * asked for.
   */
  totalSteps?: number;
  /** Where the schedule ends; default a tenth of `learningRate`. */
  minLearningRate?: number;
  /** Decoupled decay of matrices and embeddings, never of norms; default 0.1. */
  weightDecay?: number;
  /** Decay rate of the first moment; default 0.9. */
  beta1?: number;
  /** Decay rate of the second moment; default 0.95. */
  beta2?: number;
  /** Added to the root of the second moment; default 1e-8. */
  epsilon?: number;
  /** Gradients of a larger global norm are scaled down to it; default 1, null for no clipping. */
  maxGradNorm?: number | null;
  /** Micro-steps whose gradients make one step; default 1. */
  gradientAccumulation?: number;
  /** Most tokens in a (micro-)step; activations are allocated for it. Default 1024. */
  tokensPerStep?: number;
  /**
   * Compute activations again in the backward pass instead of keeping them: the same losses to the
   * bit, up to a quarter more arithmetic, and the activations of one layer in memory in place of all.
   * Default false.
   */
  recompute?: boolean;
  /**
   * `"mixed"`: products read the weights in f16, from a copy that each step makes; sums, activations,
   * gradients, moments and the weights themselves stay f32. Default `"f32"`.
   */
  precision?: "f32" | "mixed";
  /**
   * Seed of the order in which `run` draws documents, together with the dataset's own; an unsigned
   * 32-bit number, default 0.
   */
  seed?: number;
}

/** A trainer's options in force, every default filled in. */
export interface ResolvedTrainerOptions
  extends Readonly<Required<Omit<TrainerOptions, "totalSteps">>> {
  /** Null while the length of the schedule is not known. */
  readonly totalSteps: number | null;
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
  /** The right next id for each position; 0xffffffff is left out of the loss. */
  targets: TokenIds;
  /** For each position the index at which its document starts; default: one document. */
  documents?: TokenIds;
}

/** What a step reports. */
export interface StepMetrics {
  /** Optimizer steps done, counting this one. */
  readonly step: number;
  /** Mean cross-entropy in nats a token; of a micro-step that is not the last, its own. */
  readonly loss: number;
  /** Global norm of the averaged gradient, before clipping; NaN before the last micro-step. */
  readonly gradNorm: number;
  /** The rate this step used. */
  readonly learningRate: number;
  /** Tokens in the step, over all its micro-steps; of `step()`, those of its batch. */
  readonly tokens: number;
  /** Wall time of the same. */
  readonly milliseconds: number;
  /** Whether the update was left out because loss or norm was not finite. */
  readonly skipped: boolean;
  /** Loss on the validation split, at the steps where `run` evaluated. */
  readonly validationLoss?: number;
}

/** Options of `Trainer.run`. */
export interface RunOptions {
  /**
   * Steps to do, of this run's own: a `step()` that comes between them is not one of them. Default: up to
   * the step that `until` says, else to the trainer's `totalSteps`, else without end.
   */
  steps?: number;
  /** Ends when `trainer.steps` has reached this number, whoever did the steps. Not with `steps`. */
  until?: number;
  /** Stops with code "aborted" between two steps or micro-steps. */
  signal?: AbortSignal;
  /** Evaluate at each multiple of so many of the trainer's steps, and at the run's last step. */
  evaluateEvery?: number;
  /** Skipped steps in a row after which the run ends with code "non-finite"; default 3. */
  maxSkipped?: number;
  /**
   * Steps that are on their way behind the one whose metrics are awaited, so that a short step need
   * not wait for its loss to be read: default 0, at most 16, and never past an evaluation. While they
   * are, the model and the trainer are as many steps ahead of the metrics; leaving the loop waits for
   * them. Not with `gradientAccumulation`.
   */
  stepsAhead?: number;
}

/** A loss on the validation split. */
export interface Evaluation {
  /** Mean cross-entropy in nats a token. */
  readonly loss: number;
  /** Tokens counted. */
  readonly tokens: number;
}

/** Files of `Trainer.save`. */
export interface TrainerFiles extends ModelFiles {
  "optimizer.safetensors": Uint8Array<ArrayBuffer>;
  "trainer_state.json": Uint8Array<ArrayBuffer>;
}

/** The part of the work that a dispatch belongs to. */
export type Phase = "forward" | "backward" | "optimizer" | "prefill" | "decode";

/** One dispatch of a step. */
export interface PlanRow {
  readonly phase: Phase;
  /** What it computes, such as `"layer 0 q, k, v"`. */
  readonly label: string;
  readonly kernel: string;
  readonly variant: string;
  /** Why this variant was chosen. */
  readonly reason: string;
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
  /** Absent without timestamps; of the optimizer's also before the first update. */
  readonly gpuMicroseconds?: number;
}
