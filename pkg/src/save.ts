/** What `save` takes, and where it writes. */

import { stored } from "./internal.js";
import { check, inspect, invalid, type Rules } from "./options.js";
import { isFile, LONG, type LongOptions } from "./source.js";

/** Names of a model's files, of an adapter's, and of what a trainer adds. */
export const MODEL_FILES: readonly string[] = ["config.json", "model.safetensors"];
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
 * written; if the save fails, they are aborted, and directories and handles keep the files they had.
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

/** Options of `Trainer.save`. */
export interface TrainerSaveOptions extends SaveOptions {
  /**
   * Saves the newest snapshot of good weights instead of the weights as they are, after a run that ended with
   * `non-finite`. A snapshot is good once a step after it gave a finite loss of at most 16, or twice the first one.
   */
  good?: boolean;
}

const SAVE: Rules<SaveOptions> = {
  ...LONG,
  to: (value) =>
    typeof value === "object" && value !== null
      ? undefined
      : 'a directory handle, or an object of WritableStreams or file handles such as { "config.json": … }',
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
    const { to } = chosen;
    if (to === undefined || isDirectory(to) || stored.find(to)) return chosen;
    const given = check("save: to", to, streams(names)) as OwnStreams;
    const missing = names.filter((name) => given[name] === undefined);
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
