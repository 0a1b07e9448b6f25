/** What `save` takes, and where it writes. */

import { type CheckpointFiles, isFile, LONG, type LongOptions } from "./file-source.js";
import { stored } from "./internal.js";
import { type Dtype, GENERATION_FILE } from "./notes.js";
import { check, inspect, invalid, oneOf, type Rules } from "./options.js";
import type { TokenizerFiles } from "./text/types.js";
import type { TextEncoding } from "./tokenizer.js";

/** Names of a model's files, of an adapter's, and of what a trainer adds. */
export const MODEL_FILES: readonly string[] = ["config.json", "model.safetensors"];
/** What may come beside a model's files. */
export const BESIDE: readonly string[] = [GENERATION_FILE];
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
 * a `generation_config.json`, a stream of that name takes it; without one it is left out.
 */
export type SaveTarget = FileSystemDirectoryHandle | RunHandle | OwnStreams;

type OwnStreams = {
  readonly [name: string]: WritableStream<Uint8Array> | FileSystemFileHandle;
};

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
  tokenizer?: TextEncoding | string | URL | CheckpointFiles | TokenizerFiles | null;
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

export const DTYPE: Rules<DtypeOptions> = { dtype: oneOf("f32", "f16", "bf16") };

/** Rules of what {@link Model.save} takes besides; the part that writes the file judges the others. */
export const FORMAT: Rules<Omit<ModelSaveOptions, keyof SaveOptions>> = {
  ...DTYPE,
  format: oneOf("safetensors", "gguf"),
  type: () => undefined,
  tokenizer: () => undefined,
  name: () => undefined,
};

const SAVE: Rules<SaveOptions> = {
  ...LONG,
  to: (value) =>
    typeof value === "object" && value !== null
      ? undefined
      : "a directory handle, or an object with a WritableStream or file handle for each file",
};

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

/** The options of a save of these files, and its streams, before anything is read or taken. */
export function saveOptions<T extends SaveOptions>(
  options: T,
  names: readonly string[],
  more = {},
): T {
  return inspect("save: to", () => {
    const chosen = check("save", options, { ...SAVE, ...more } as Rules<T>);
    const { to, format, type, tokenizer, name, dtype } = chosen as ModelSaveOptions;
    const needed = format === "gguf" ? GGUF_FILES : names;
    if (needed === names && (type ?? tokenizer ?? name) !== undefined) {
      throw invalid(
        'save: type, tokenizer and name are of files with format: "gguf"; give that too',
      );
    }
    if (needed !== names && dtype) {
      throw invalid('save: dtype is of safetensors; of files with format: "gguf" give type');
    }
    if (to === undefined || isDirectory(to) || stored.find(to)) return chosen;
    const beside = names.includes(MODEL_FILES[0] as string) && needed === names ? BESIDE : [];
    const given = check("save: to", to, streams([...needed, ...beside])) as OwnStreams;
    const missing = needed.filter((name) => given[name] === undefined);
    if (missing.length > 0) {
      throw invalid(
        `save: to has no stream or file handle for ${missing.join(", ")}; give one for each file`,
      );
    }
    return { ...chosen, to: given };
  });
}

export function isDirectory(to: unknown): to is FileSystemDirectoryHandle {
  return typeof (to as FileSystemDirectoryHandle).getFileHandle === "function";
}

/** A rule for each file: a stream that nobody else writes to, or a handle. */
function streams(names: readonly string[]): Rules<{ [name: string]: unknown }> {
  const rule = (value: unknown) =>
    (value instanceof WritableStream && !value.locked) || isFile(value)
      ? undefined
      : "a WritableStream that is not locked, or a file handle";
  return Object.fromEntries(names.map((name) => [name, rule]));
}
