/** Optimizers and their options. The tests of src/optim write this file from its rows. */

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
   */
  epsilon?: number;
  /**
   * `"muon"`: how much of the momentum a step keeps; default 0.95. `"sgd"`: how much of the velocity
   * a step keeps. With 0 there is no velocity, and no state; default 0.9.
   */
  momentum?: number;
}

/** What of a trainer's options depends on the optimizer. */
export interface OptimizerOptions extends OptimizerNumbers {
  /**
   * What turns gradients into updates; default `"adamw"`.
   */
  optimizer?: "adamw" | "adamw8bit" | "lion" | "muon" | "sgd";
  /**
   * Peak learning rate; default 0.001, of `"lion"` 1e-4, of `"sgd"` 0.1.
   */
  learningRate?: number;
  weightDecay?: number;
}

/** Rules of {@link OptimizerOptions}. */
export const OPTIMIZER: Rules<OptimizerOptions> = {
  optimizer: oneOf("adamw", "adamw8bit", "lion", "muon", "sgd"),
  learningRate: number(0, Number.POSITIVE_INFINITY, true),
  weightDecay: number(0),
  beta1: fraction(),
  beta2: fraction(),
  epsilon: number(0, Number.POSITIVE_INFINITY, true),
  momentum: fraction(),
};

/** Where an optimizer's defaults are not the first one's. */
export const DEFAULTS: { readonly [optimizer: string]: OptimizerOptions } = {
  lion: { learningRate: 1e-4, weightDecay: 1 },
  sgd: { learningRate: 0.1, weightDecay: 0.001 },
};
