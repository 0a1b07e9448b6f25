/** The adapter that a runtime opens its device on, and what to do where there is none. */

import { TinyloomError } from "./error.js";
import { morePart } from "./lazy.js";
import { isA, show } from "./options.js";

/**
 * Asks for an adapter; the module checks what it is given.
 *
 * @throws {@link TinyloomError} `adapter-unavailable`.
 */
export async function requestAdapter(
  gpu: GPU,
  powerPreference: GPUPowerPreference = "high-performance",
): Promise<GPUAdapter> {
  let adapter: GPUAdapter | null;
  try {
    adapter = await gpu.requestAdapter({ powerPreference });
  } catch (cause) {
    throw unavailable(isA(cause, Error) ? cause.message : show(cause), cause);
  }
  if (!adapter) throw unavailable("requestAdapter found none");
  return adapter;
}

function unavailable(reason: string, cause?: unknown): TinyloomError {
  return new TinyloomError("adapter-unavailable", `no WebGPU adapter: ${reason}`, { cause });
}

/** When a device of this page was last lost, and not by `destroy()`. */
let failed: number | undefined;

/** Remembers that a device was lost. */
export function noteLoss({ reason }: { readonly reason: string }): void {
  if (reason !== "destroyed") failed = performance.now();
}

/** The error of a missing adapter, with what can be done about it here. */
export function advised(error: TinyloomError): Promise<TinyloomError> {
  return morePart().then(
    ({ withAdvice }) => withAdvice(error, failed),
    () => error, // where no part can be loaded
  );
}
