/** Optimizers and their options. The tests of crates/kernels/src/optim write this file from its rows. */

import { fraction, number, oneOf, type Rules } from "./options.js";

/** The numbers of optimizers. Each has its own; others are refused. */
export interface OptimizerNumbers {
  /**
   * `"adamw"`, `"adamw8bit"`, `"muon"`: decay rate of the first moment; default 0.9. `"lion"`: the
   * moment's share of a step's direction; default 0.9.
   */
  beta1?: number;
  /**
   * `"adamw"`, `"adamw8bit"`, `"muon"`: decay rate of the second moment; default 0.95. `"lion"`:
   * decay rate of the moment; default 0.99.
   */
  beta2?: number;
  /**
   * `"adamw"`, `"adamw8bit"`, `"muon"`: added to the root of the second moment; default 1e-8.
   * `"adafactor"`: the least root of the second moment; default 1.1920928955078125e-7.
   */
  epsilon?: number;
  /**
   * `"adafactor"`: the power of the updates made that is the newest gradient's share of the second
   * moment; default -0.8.
   */
  beta2Decay?: number;
  /**
   * `"adafactor"`: the least size of a tensor's weights that a step is in proportion to; default
   * 0.001.
   */
  leastScale?: number;
  /**
   * `"adafactor"`: the largest root mean square of a tensor's update, before the rate; default 1.
   */
  clipThreshold?: number;
  /**
   * `"muon"`: how much of the momentum a step keeps; default 0.95. `"sgd"`: how much of the
   * velocity a step keeps. With 0 there is no velocity, and no state; default 0.9.
   */
  momentum?: number;
}

/** What of a trainer's options depends on the optimizer. */
export interface OptimizerOptions extends OptimizerNumbers {
  /**
   * What turns gradients into updates; default `"adamw"`. `"adamw"` keeps two moments.
   * `"adafactor"` keeps a number for each row and each column of a matrix, and steps in proportion
   * to the size of a tensor's weights. `"adamw8bit"` keeps AdamW's moments as 8-bit codes, in 2.03
   * bytes per weight instead of 8. `"lion"` keeps one moment. `"muon"` makes the momentum of each
   * matrix of the layers orthogonal, and updates the rest by AdamW. `"sgd"` keeps a velocity, or
   * with `momentum: 0` nothing; its decay is coupled, as in PyTorch: it adds to the gradient after
   * clipping, and so to the velocity. Each has its own numbers among the options; others are
   * refused.
   */
  optimizer?: "adamw" | "adafactor" | "adamw8bit" | "lion" | "muon" | "sgd";
  /**
   * Peak learning rate; default 0.001, of `"adafactor"` 0.01, of `"lion"` 1e-4, of `"sgd"` 0.1.
   */
  learningRate?: number;
  /**
   * Weight decay of matrices and embeddings, but not of norms; default 0.1, of `"adafactor"` 0.01,
   * of `"lion"` 1, of `"sgd"` 0.001. It is decoupled, but for `"sgd"`.
   */
  weightDecay?: number;
}

/** Rules of {@link OptimizerOptions}. */
export const OPTIMIZER: Rules<OptimizerOptions> = {
  optimizer: oneOf("adamw", "adafactor", "adamw8bit", "lion", "muon", "sgd"),
  learningRate: number(0, Number.POSITIVE_INFINITY, true),
  weightDecay: number(0),
  beta1: fraction(),
  beta2: fraction(),
  epsilon: number(0, Number.POSITIVE_INFINITY, true),
  beta2Decay: number(Number.NEGATIVE_INFINITY, 0),
  leastScale: number(0),
  clipThreshold: number(1),
  momentum: fraction(),
};

/** Where an optimizer's defaults are not the first one's. */
export const DEFAULTS: { readonly [optimizer: string]: OptimizerOptions } = {
  adafactor: { learningRate: 0.01, weightDecay: 0.01 },
  lion: { learningRate: 1e-4, weightDecay: 1 },
  sgd: { learningRate: 0.1, weightDecay: 0.001 },
};
