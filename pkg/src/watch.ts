/** Long calls of the module, which ask between their pieces whether to go on. */

import { throwIfAborted } from "./error.js";
import { type LongOptions, report, reported } from "./progress.js";
import type { Ask, Releasable } from "./raw-types.js";

/**
 * Runs a call that takes `signal` and `onProgress`. It ends with code "aborted" at the signal, or with
 * what `onProgress` threw.
 *
 * @param what - the call, as the user wrote it, for the message.
 * @param undoable - whether what the call has done can be left: else a promise of `onProgress` that fails comes too late.
 */
export async function watched<T>(
  what: string,
  options: LongOptions,
  call: (ask: Ask) => Promise<T>,
  undoable = true,
): Promise<T> {
  throwIfAborted(options.signal, what);
  let ended: { error: unknown } | undefined;
  const ask: Ask = (loaded, total, stage) => {
    try {
      throwIfAborted(options.signal, what);
      report(options, { loaded, total, stage });
      return false;
    } catch (error) {
      ended = { error };
      return true;
    }
  };
  let result: T | undefined;
  try {
    result = await call(ask);
    if (undoable) await reported(options);
    return result;
  } catch (error) {
    const made = result as Partial<Releasable> | undefined; // nobody else has it
    made?.release?.();
    made?.free?.();
    throw ended ? ended.error : error;
  }
}

/**
 * Does the work now; the function that this gives returns or throws what came of it. For generators,
 * whose bodies run late and whose callers expect errors from the loop.
 */
export function evaluated<T>(work: () => T): () => T {
  try {
    const value = work();
    return () => value;
  } catch (error) {
    return () => {
      throw error;
    };
  }
}
