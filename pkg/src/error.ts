import { show } from "./value-text.js";

/**
 * The stable reasons of a failure. Programs branch on the code; people read the message.
 *
 * - `webgpu-unavailable`: there is no GPU object (`navigator.gpu`, or the `gpu` option).
 * - `adapter-unavailable`: WebGPU is there but offers no adapter.
 * - `limit-exceeded`: a config or an option needs more than the device, or a cap the caller set, allows.
 * - `out-of-memory`: the GPU, or the module's own memory, has no room for it.
 * - `invalid-config`, `invalid-options`, `invalid-tokens`, `invalid-checkpoint`: the named input is wrong.
 * - `non-finite`: the loss or the gradient norm was not finite too many steps in a row, or a model's logits are not.
 * - `device-lost`: the GPU device is gone, and this object does not come back on another.
 * - `freed`: the object was used after `free()` or `destroy()`.
 * - `aborted`: the caller's `AbortSignal` fired.
 * - `module-unavailable`: the wasm module, a part of tinyloom, or an optional package did not come.
 * - `content-security`: the page's content-security policy forbids WebAssembly, or the worker.
 * - `storage-full`: the disk, or the site's share of it, has no room for a file.
 * - `in-use`: the stored run is open in another tab, process or thread, or by another `Runs` of the page.
 * - `worker-unavailable`: `connect()` of `tinyloom/worker` can open no worker here, or it does not answer.
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
  | "storage-full"
  | "in-use"
  | "worker-unavailable"
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
  "storage-full",
  "in-use",
  "worker-unavailable",
  "internal",
]);

/**
 * Every failure of tinyloom. After a failed call the object is as it was before the call. The exception is a
 * training step of which the GPU refuses a part: its message says that the weights may have changed.
 *
 * It survives `structuredClone` and `postMessage`: the copy is plain data with `name`, `code`, `message`
 * and `stack`, and {@link TinyloomError.from} turns that copy back into an error.
 *
 * @example
 * ```ts
 * worker.onmessage = ({ data }) => {
 *   if (data.failed) throw TinyloomError.from(data.failed);
 * };
 * ```
 */
export class TinyloomError extends Error {
  declare readonly name: "TinyloomError";
  /** The stable reason. */
  declare readonly code: ErrorCode;

  static {
    // For the first line of `stack`.
    Object.defineProperty(TinyloomError.prototype, "name", { value: "TinyloomError" });
  }

  /**
   * @param code - the stable reason.
   * @param message - a sentence that names the value, what is allowed and what to change.
   * @param options - `cause`: the error underneath, where there is one.
   */
  constructor(code: ErrorCode, message: string, options?: ErrorOptions) {
    super(message);
    // Of a native error structuredClone keeps the message alone, and of a plain object its own
    // properties. So this is one, with the prototype of the class. What cannot be cloned may be a cause.
    const { stack } = this;
    const visible = (value: unknown) => ({ value, enumerable: true, configurable: true });
    // biome-ignore lint/correctness/noConstructorReturn: what `super` makes is a native error
    return Object.create(new.target.prototype, {
      name: visible("TinyloomError"),
      code: visible(code),
      message: visible(message),
      stack: { ...visible(stack), writable: true },
      ...(options?.cause !== undefined && { cause: { value: options.cause, configurable: true } }),
    });
  }

  /**
   * The error of whatever was thrown or received: of a copy that `structuredClone` or `postMessage`
   * made, the error with its code; of anything else, one with code "internal".
   */
  static from(value: unknown): TinyloomError {
    return isTinyloomError(value) ? value : (copied(value) ?? unexpected(value));
  }
}

/** Whether this is an error of this module; a proxy that throws is not. */
export function isTinyloomError(value: unknown): value is TinyloomError {
  try {
    return value instanceof TinyloomError;
  } catch {
    return false;
  }
}

/** What has the fields of an error: from the wasm module, or through structuredClone. */
function copied(value: unknown): TinyloomError | undefined {
  try {
    const { code, message, name, stack } = value as Partial<TinyloomError>;
    if (typeof code === "string" && CODES.has(code)) {
      const clone = (name as unknown) === "TinyloomError";
      const error = new TinyloomError(code, String(message), clone ? {} : { cause: value });
      if (clone && typeof stack === "string") error.stack = stack;
      return error;
    }
    if ((name as unknown) === "AbortError") {
      return new TinyloomError("aborted", "the operation was aborted", { cause: value });
    }
  } catch {
    // null, undefined, or what throws when it is read
  }
  return undefined;
}

function unexpected(thrown: unknown): TinyloomError {
  const text = typeof thrown === "string" ? thrown : show(thrown);
  return new TinyloomError("internal", `unexpected failure: ${text}`, { cause: thrown });
}

/** Turns whatever was thrown below into a `TinyloomError`. */
export const toError = (thrown: unknown): TinyloomError => TinyloomError.from(thrown);

/** Throws code "aborted" when the signal has fired. */
export function throwIfAborted(signal: AbortSignal | undefined, what: string): void {
  let cause: unknown;
  try {
    if (!signal?.aborted) return;
    cause = signal.reason;
  } catch (thrown) {
    cause = thrown; // of a signal of the caller's own
  }
  throw new TinyloomError("aborted", `${what} was aborted by its signal`, { cause });
}
