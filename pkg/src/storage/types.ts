/** The shapes of data that stored runs take and give. */

import { check, flag, isA, type Rules } from "../options.js";
import type { StoredCheckpoint } from "./checkpoint.js";
import { jsonCopy } from "./json.js";
import type { Contents } from "./record.js";

/** Options of `Runs.open`. */
export interface RunsOptions {
  /** The folder, in Node, Deno and Bun; default `tinyloom/NAME` in the folder of the user's data. */
  folder?: string | URL;
  /** Keeps the runs in memory, where they end with the page; for a page whose storage is full. Default false. */
  memory?: boolean;
}

/** What a run keeps beside its checkpoints, for the page that comes back to it. */
export interface RunContent {
  /** The training data, as the page wants it back. */
  data?: Blob | string | Uint8Array<ArrayBuffer>;
  /** The tokenizer's text, such as a tokenizer.json. */
  tokenizer?: string;
  /** Whatever else the page needs, kept as JSON: a copy. A field that is undefined counts as absent; NaN, a Date and the like are refused. */
  options?: unknown;
}

/** An entry of `Runs.list`. */
export interface RunSummary {
  readonly id: string;
  readonly name: string;
  /** Milliseconds since 1970. */
  readonly created: number;
  /** As {@link StoredRun.options} has them. */
  readonly options: unknown;
  /** The whole checkpoints, the newest first. */
  readonly checkpoints: readonly StoredCheckpoint[];
}

/** Files of an exported run. `runs.import` takes bytes too. */
export type RunFiles = { readonly [name: string]: Blob };

const text = (value: unknown) => (typeof value === "string" ? undefined : "a string");
/** Rules of {@link RunsOptions}. */
export const OPTIONS: Rules<RunsOptions> = {
  folder: (value) =>
    (typeof value === "string" && value) || value instanceof URL
      ? undefined
      : "a path or a file: URL",
  memory: flag,
};
/** Rules of {@link RunContent}. */
const CONTENT: Rules<RunContent> = {
  data: (value) =>
    typeof value === "string" || isA(value, Blob) || value instanceof Uint8Array
      ? undefined
      : "a Blob, a string or a Uint8Array",
  tokenizer: text,
  options: () => undefined,
};

/** What a call was given for a run, checked. */
export function contentOf(
  where: string,
  given: RunContent,
): { readonly content: Contents; readonly options?: unknown } {
  const { data, tokenizer, options } = check(where, given, CONTENT);
  const kept = jsonCopy(where, "options", options);
  const content = {
    ...(data !== undefined && { data: data instanceof Blob ? data : new Blob([data]) }),
    ...(tokenizer !== undefined && { tokenizer: new Blob([tokenizer]) }),
  };
  return { content, ...(kept !== undefined && { options: kept }) };
}
