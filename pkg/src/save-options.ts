/** Checks what `save` is called with. */

import { isFile } from "./file-part.js";
import { check, inspect, invalid, oneOf, type Rules } from "./options.js";
import { LONG } from "./progress.js";
import type { DtypeOptions, ModelSaveOptions, OwnStreams, SaveOptions } from "./save-types.js";
import { BESIDE, GGUF_FILES, MODEL_FILES } from "./save-types.js";
import { stored } from "./stored-runs.js";

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
