/** Where files are written, and how: the options of `save`, and what a target has to do. */

import type { CheckpointSource } from "./file-part.js";
import type { Dtype } from "./notes.js";
import { GENERATION_FILE } from "./notes.js";
import type { LongOptions } from "./progress.js";
import type { TokenizerFiles } from "./text/types.js";
import type { TextEncoding } from "./tokenizer-types.js";

/** Names of a model's files, of an adapter's, and of what a trainer adds. */
export const MODEL_FILES: readonly string[] = ["config.json", "model.safetensors"];

/** What transformers computes models of `model_type: "tinyloom"` with. */
export const MODELING_FILE = "modeling_tinyloom.py";

/** What may come beside a model's files. */
export const BESIDE: readonly string[] = [GENERATION_FILE, MODELING_FILE];

export const GGUF_FILES: readonly string[] = ["model.gguf"];

export const ADAPTER_FILES: readonly string[] = [
  "adapter_config.json",
  "adapter_model.safetensors",
];

export const STATE_FILES: readonly string[] = ["optimizer.safetensors", "trainer_state.json"];

/** An open run of `tinyloom/storage`. */
export interface RunHandle {
  readonly id: string;
  readonly name: string;
}

/**
 * Where files go: a run of `tinyloom/storage`, a directory of the user's disk or of the origin's private
 * file system, or a stream or file handle for each file by its name. Streams are closed when all files are
 * written; if the save fails, they are aborted, and directories and handles keep the files they had. Where the model has
 * a `generation_config.json`, a stream of that name takes it; without one it is left out. So it is with
 * `modeling_tinyloom.py`, which is beside models of `model_type: "tinyloom"`.
 */
export type SaveTarget = FileSystemDirectoryHandle | RunHandle | OwnStreams;

export type OwnStreams = {
  readonly [name: string]: WritableStream<Uint8Array> | FileSystemFileHandle;
};

/** The least loss on validation data that a run of `tinyloom/storage` has seen, and what tells those data. */
export interface Best {
  readonly loss: number;
  readonly data: string;
}

/** What becomes of a checkpoint in a run of `tinyloom/storage`. */
export interface Keeping {
  /** How many of its kind are kept; default: as many as the run was last asked to keep. */
  readonly keep?: number | undefined;
  /** For what it is kept as the best so far. */
  readonly best?: Best | undefined;
  /** Called with its number once it is whole, before older ones are removed. */
  readonly kept?: ((number: number) => void) | undefined;
}

/** Options of `save`. */
export interface SaveOptions extends LongOptions {
  /** Where to write; without it the files are returned as bytes. */
  to?: SaveTarget;
}

/** What the weights of a checkpoint are written in. */
export interface DtypeOptions {
  /**
   * The type of the weights in the file. Default: that of the checkpoint which the model was loaded from, where all its
   * tensors have one, and otherwise `"f32"`, also of a new model. What 16 bits cannot hold is rounded, and a number
   * beyond their range refused. A trainer's own files are always in f32.
   */
  dtype?: Dtype;
}

/** How a GGUF file is made. */
export interface GgufOptions {
  /**
   * What matrices are stored in; default "f16". Vectors stay in f32. `"q8_0"` and `"q4_0"` are ggml's blocks of 32
   * weights, of 8.5 and 4.5 bits per weight; a matrix whose rows are no multiple of 32 is in f16. With `"q4_0"` the
   * matrix that gives the logits is in `"q8_0"`.
   */
  type?: "f32" | "f16" | "q8_0" | "q4_0";
  /**
   * The tokenizer that goes into the file: the model's, its files by name or where they are, or null for none. One
   * with byte fallback, as Llama 2's and Gemma's, takes the files with `tokenizer.model`, which has the scores that
   * llama.cpp merges by.
   */
  tokenizer?: TextEncoding | CheckpointSource | TokenizerFiles | null;
  /**
   * The model's name in the file, `general.name`, which programs show. Default: `_name_or_path` of its config, and
   * otherwise its family.
   */
  name?: string;
}

/** Options of `Model.save`. `type` and `tokenizer` are of `"gguf"`, which needs a tokenizer. */
export interface ModelSaveOptions extends SaveOptions, GgufOptions, DtypeOptions {
  /** `"safetensors"`, the default, is for transformers; `"gguf"` is one file, `model.gguf`, for llama.cpp. */
  format?: "safetensors" | "gguf";
}

/** Options of `Trainer.save`. */
export interface TrainerSaveOptions extends SaveOptions {
  /**
   * Saves the newest snapshot of good weights instead of the weights as they are, after a run that ended with
   * `non-finite`. A snapshot is good once a step after it gave a finite loss of at most 16, or twice the first one.
   */
  good?: boolean;
}

/** One file on its way. */
export interface Out {
  write(bytes: Uint8Array): Promise<void> | void;
  /** Writes the file's first bytes again; absent where that cannot be. */
  rewrite?(bytes: Uint8Array): Promise<void> | void;
}

/** What a save writes to. */
export interface Target {
  /** Told of the bytes of all files before the first is opened. */
  expect?(bytes: number): Promise<void>;
  open(name: string, size: number): Promise<Out> | Out;
  /** Ends well: from here on the files are what was written. */
  close(): Promise<void>;
  abort(cause: unknown): Promise<void>;
}

/** Some of a tensor's bytes. */
export interface Piece {
  /** The tensor's number. */
  readonly index: number;
  readonly begin: number;
  readonly end: number;
}

/** Writes the next bytes of a file. */
export type Put = (bytes: Uint8Array) => Promise<void> | void;

/** Takes the bytes of a piece, and its place among the pieces. */
export type TakePiece = (bytes: Uint8Array, at: number) => Promise<void> | void;
