/** Long operations: their options, and what they tell of their progress. */

import type { Rules } from "./options.js";
import { abortSignal, callback, called, flag } from "./options.js";

/** How far a long operation has come. */
export interface Progress {
  /** Units done: bytes, unless the operation says otherwise. */
  readonly loaded: number;
  /** Units in all; 0 while unknown. */
  readonly total: number;
  /** What is being done, such as `"download model.safetensors"`, which includes the upload, or `"upload"`. */
  readonly stage: string;
}

/** Options of operations that take long. */
export interface LongOptions {
  /**
   * Called as the work goes on. An error it throws ends the operation, and so does a promise of it that fails before the
   * end. In a worker the operation also waits for these promises.
   */
  onProgress?: (progress: Progress) => void;
  /** Ends the operation with code "aborted"; the object stays as it was. */
  signal?: AbortSignal;
}

/** Options of what loads files from the web. */
export interface LoadOptions extends LongOptions {
  /**
   * Keeps files of a URL in the browser's cache storage, under the name `tinyloom`, and takes them from
   * there the next time. In Node they are kept in the folder `tinyloom` of the user's caches. Default false.
   */
  cache?: boolean;
  /**
   * Asks for files of a URL, instead of the global `fetch`: with headers of your own, such as a token. It gets the
   * address and what `fetch` takes, and gives the answer. A worker takes no such function.
   *
   * @example
   * ```ts
   * const fetch = (url, init) => globalThis.fetch(url, { ...init, headers: { ...init.headers, authorization } });
   * ```
   */
  fetch?: (url: string, init: RequestInit) => Promise<Response>;
}

/** Rules of {@link LongOptions}. */
export const LONG: Rules<LongOptions> = { onProgress: callback, signal: abortSignal };

/** Rules of {@link LoadOptions}. */
export const LOAD: Rules<LoadOptions> = { ...LONG, cache: flag, fetch: callback };

/** What a promise of `onProgress` has failed with, by the call's options. */
export const failures = new WeakMap<LongOptions, () => never>();

/** Tells of progress; what the callback throws ends the operation, and so does a promise of it that fails. */
export function report(options: LongOptions, progress: Progress): void {
  called("onProgress", () => {
    failures.get(options)?.();
    const given = options.onProgress?.(progress) as Promise<void> | undefined;
    given?.catch?.((cause) => {
      failures.set(options, () => {
        throw cause;
      });
    });
  });
}

/** Ends an operation that has told of its last progress: in a page it does not wait for a promise that goes on. */
export async function reported(options: LongOptions): Promise<void> {
  await undefined;
  called("onProgress", () => failures.get(options)?.());
}
