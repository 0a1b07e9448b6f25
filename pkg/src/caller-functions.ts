/** Functions of the caller's that a generation calls, and how long it waits for them. */

import { either } from "./abortable.js";
import { awaited } from "./options.js";
import type { RawHandle } from "./raw-handle.js";
import type { RawModel } from "./raw-types.js";

/** What ends a wait for something of the caller's. */
export interface Until {
  readonly signal: AbortSignal | undefined;
  /** Of the model, or of the adapter over it. */
  readonly handle: RawHandle<RawModel>;
}

/** What a function of the caller's gives, which may give a promise. */
export function given<T>(
  what: string,
  work: () => T | Promise<T>,
  { signal, handle }: Until,
): Promise<T> {
  return awaited(`generate: ${what}`, async () => {
    const waited = either((async () => work())(), handle.ended);
    try {
      return await either(waited, signal, undefined, "generate");
    } catch (error) {
      void handle.raw; // code "freed"
      throw error;
    }
  });
}
