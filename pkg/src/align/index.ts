/**
 * Trainers of preference, on `model.score` and `trainer.step` alone.
 *
 * @module tinyloom/align
 */

export type { Anywhere } from "./checks.js";
export { type DistillOptions, distill } from "./distill.js";
export {
  type DpoMetrics,
  type DpoOptions,
  dpo,
  type PreferencePair,
  type ReferencePair,
} from "./dpo.js";
export { type GrpoMetrics, grpo } from "./grpo.js";
export type { GrpoOptions } from "./grpo-options.js";
export { type KtoMetrics, type KtoOptions, kto, type LabelledText } from "./kto.js";
export type { Reward, Rollout } from "./rollouts.js";
export type { AlignCheckpoint } from "./stored.js";
