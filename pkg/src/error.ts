/**
 * The stable reasons of a failure. Programs branch on the code; people read the message.
 *
 * - `webgpu-unavailable`: there is no GPU object (`navigator.gpu`, or the `gpu` option).
 * - `adapter-unavailable`: WebGPU is there but offers no adapter.
 * - `limit-exceeded`: a config or an option needs more than the device, or a cap the caller set, allows.
 * - `out-of-memory`: the GPU, or the module's own memory, has no room for it.
 * - `invalid-config`, `invalid-options`, `invalid-tokens`, `invalid-checkpoint`: the named input is wrong.
 * - `non-finite`: the loss or the gradient norm was not finite too many steps in a row.
 * - `device-lost`: the GPU device is gone, with all that was on it; create a new `Runtime`.
 * - `freed`: the object was used after `free()` or `destroy()`.
 * - `aborted`: the caller's `AbortSignal` fired.
 * - `module-unavailable`: the wasm module did not come: nothing, an error or a page of HTML answered.
 * - `content-security`: the page's content-security policy forbids WebAssembly.
 * - `internal`: a defect in tinyloom; please report it.
 */
export type ErrorCode =
  | "webgpu-unavailable"
  | "adapter-unavailable"
  | "limit-exceeded"
  | "out-of-memory"
  | "invalid-config"
  | "invalid-options"
  | "invalid-tokens"
  | "invalid-checkpoint"
  | "non-finite"
  | "device-lost"
  | "freed"
  | "aborted"
  | "module-unavailable"
  | "content-security"
  | "internal";

const CODES: ReadonlySet<string> = new Set<ErrorCode>([
  "webgpu-unavailable",
  "adapter-unavailable",
  "limit-exceeded",
  "out-of-memory",
  "invalid-config",
  "invalid-options",
  "invalid-tokens",
  "invalid-checkpoint",
  "non-finite",
  "device-lost",
  "freed",
  "aborted",
  "module-unavailable",
  "content-security",
  "internal",
]);

/**
 * Every failure of tinyloom. After a failed call the object is as it was before the call.
 */
export class TinyloomError extends Error {
  override readonly name = "TinyloomError";
  /** The stable reason. */
  readonly code: ErrorCode;

  /**
   * @param code - the stable reason.
   * @param message - a sentence that names the value, what is allowed and what to change.
   * @param options - `cause`: the error underneath, where there is one.
   */
  constructor(code: ErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

/** Turns whatever was thrown below into a `TinyloomError`. */
export function toError(thrown: unknown): TinyloomError {
  if (thrown instanceof TinyloomError) return thrown;
  if (typeof thrown === "object" && thrown !== null) {
    const { code, message, name } = thrown as { code?: unknown; message?: unknown; name?: unknown };
    if (typeof code === "string" && CODES.has(code)) {
      return new TinyloomError(code as ErrorCode, String(message), { cause: thrown });
    }
    if (name === "AbortError") {
      return new TinyloomError("aborted", "the operation was aborted", { cause: thrown });
    }
  }
  const text = thrown instanceof Error ? `${thrown.name}: ${thrown.message}` : String(thrown);
  return new TinyloomError("internal", `unexpected failure: ${text}`, { cause: thrown });
}

/** Throws code "aborted" when the signal has fired. */
export function throwIfAborted(signal: AbortSignal | undefined, what: string): void {
  if (signal?.aborted) {
    throw new TinyloomError("aborted", `${what} was aborted by its signal`, {
      cause: signal.reason,
    });
  }
}
