/** Options, files and the mark of an adapter. Its class needs models, and their options need this. */

import type { LoadOptions } from "./progress.js";
import type { DtypeOptions, SaveOptions } from "./save-types.js";

/** How an adapter is made, with PEFT's names of modules. */
export interface AdapterOptions {
  /** Rows of A and columns of B, from 1 to 65536; default 8. */
  rank?: number;
  /** The product B·A is scaled by `alpha / rank`; default 8. */
  alpha?: number;
  /** Scales by `alpha / √rank` instead, as rsLoRA does; default false. */
  rsLora?: boolean;
  /**
   * The share of each module's inputs that a training step leaves out before A, from 0 to below 1; the others are
   * divided by what is kept. The trainer's seed decides which. Default 0.
   */
  dropout?: number;
  /**
   * The linear modules to adapt, by their name or the end of it, such as `"q_proj"` or
   * `"layers.0.mlp.down_proj"`; or `"all-linear"`, the default: every matrix of the layers.
   */
  targets?: "all-linear" | readonly string[];
  /** Seed of A, an unsigned 32-bit number; default 0. B starts at zero. A loaded adapter has seed 0. */
  seed?: number;
}

/** An adapter's options with every default filled in. */
export interface ResolvedAdapterOptions extends Required<AdapterOptions> {
  readonly targets: readonly string[];
}

/** Options of {@link Adapter.load}. */
export interface LoadAdapterOptions extends LoadOptions {
  /** Stands in for the file's `lora_dropout`. */
  dropout?: number;
}

/** Options of {@link Adapter.saveMerged}. */
export interface MergeOptions extends SaveOptions, LoadOptions, DtypeOptions {}

/** Files of {@link Adapter.save}, as PEFT has them. */
export interface AdapterFiles {
  [name: string]: Uint8Array<ArrayBuffer>;
  "adapter_config.json": Uint8Array<ArrayBuffer>;
  "adapter_model.safetensors": Uint8Array<ArrayBuffer>;
}

/** An adapter of several that a call sums up. */
export interface WeightedAdapter {
  readonly adapter: AdapterOption;
  /** What the adapter adds is multiplied by it; default 1. Below 0 it is taken away. */
  readonly scale?: number;
}

/** Marks adapters, so that options take no other object. @hidden */
export declare const ADAPTER: unique symbol;

/** An {@link Adapter}, as the options of a model's calls take it. */
export interface AdapterOption {
  /** @hidden */
  readonly [ADAPTER]: true;
}
