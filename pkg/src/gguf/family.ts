/** What is said of a model family that lies in a GGUF file. */

import type { ModelConfig } from "../model-config.js";
import { invalid, show } from "../options.js";
import type { Metadata } from "./format.js";
import type { Keys } from "./metadata.js";

/** Elements of rows: values, what safetensors has of 16 bits, or bytes of blocks. */
export type Elements = Float32Array | Uint16Array | Uint8Array;

/** Another order of a tensor's elements, or other elements. */
export interface Change {
  /** How many rows it needs at a time. A tensor's rows are a multiple of that. Default: all rows. */
  together?(config: ModelConfig): number;
  /** The shape in the file; default that of the checkpoint. */
  shape?(stored: readonly number[]): readonly number[];
  /** Changes whole rows, of `columns` elements each. */
  change(values: Float32Array, columns: number, config: ModelConfig): Float32Array;
  /** Changes rows of a file back. */
  undo(values: Float32Array, columns: number, config: ModelConfig): Float32Array;
  /** The same of elements of any kind, where rows only change places. */
  moveBack?<E extends Elements>(values: E, columns: number, config: ModelConfig): E;
}

/** What the core knows of how llama.cpp has a family: `names.ts`. */
export interface GgufNames {
  /** llama.cpp's name, which is the prefix of the keys. */
  readonly architecture: string;
  /** llama.cpp's names of modules. Those with a layer are in `blk.N.`. */
  readonly modules: { readonly [module: string]: string };
  /** What is changed of a module's parameters. */
  readonly changes: { readonly [module: string]: "pairs" | "plus-one" | "transposed" | "stacked" };
  /** The values of fields that llama.cpp computes. A list is repeated over the layers. */
  readonly expected: { readonly [field: string]: readonly unknown[] };
}

/** Fields of a config, whatever they are called. */
export type Fields = { [name: string]: unknown };

/** Whether a file has a tensor. */
export type Has = (name: string) => boolean;

/** What a family's file has beside its names: how it is written, and read. */
export interface Rules {
  /** The key of the norms' epsilon; default that of norms without a mean. */
  readonly epsilon?: string;
  /** The config with Llama's names of its fields, where the family has others. */
  renamed?(config: ModelConfig): ModelConfig;
  /** Writes the keys that are the family's own, and refuses what llama.cpp computes otherwise. */
  write(metadata: Metadata, config: ModelConfig): void;
  /** The family's fields, of the keys after its prefix and of what all families have, under Llama's names. */
  read(keys: Keys, prefix: string, config: Fields): Fields;
  /** Fields that say which products have biases, of the tensors of a file: no key does. */
  biases?(has: Has): Fields;
  /** Where layers are in a checkpoint; what is in no layer is beside them. Default `model.layers`. */
  readonly layers?: string;
  /** Positions that llama.cpp computes as the model does; default `max_position_embeddings`. */
  positions?(config: ModelConfig): number;
  /** Tensors that no checkpoint has. */
  extra?(config: ModelConfig): { readonly [name: string]: Float32Array };
}

export type Family = GgufNames & Rules;

/**
 * Refuses a field's value that llama.cpp does not compute.
 *
 * @param allowed - the values that it does compute. One that is a list is repeated over the layers.
 */
export function expectField(config: ModelConfig, field: string, allowed: readonly unknown[]): void {
  const value = config[field] ?? null;
  const same = (one: unknown) =>
    Array.isArray(one)
      ? Array.isArray(value) && value.every((of, layer) => of === one[layer % one.length])
      : one === value;
  if (allowed.some(same)) return;
  const values = allowed.map((one) => (Array.isArray(one) ? `repeated ${show(one)}` : show(one)));
  throw refusedField(config, field, values.join(" or "));
}

/** @param allowed - what of it llama.cpp computes, in words. */
export function refusedField(config: ModelConfig, field: string, allowed: string): Error {
  return invalid(
    `save: llama.cpp computes this family only with ${field} ${allowed}, and it is ${show(config[field])}; ` +
      'save with format: "safetensors"',
  );
}
