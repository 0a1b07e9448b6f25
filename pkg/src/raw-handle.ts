/**
 * Adds to a raw object of the module: an end after which nobody uses it, its turn among other calls, errors in tinyloom's
 * words, and calls that are made again after a lost device.
 */

import type { CallQueue } from "./call-queue.js";
import { TinyloomError, toError } from "./error.js";
import type { InstanceLife } from "./instance-life.js";
import type { Releasable } from "./raw-types.js";

/** Failures after which a call cannot be made again. */
export const unrepeatable = new WeakSet<TinyloomError>();

/** What gives a handle another raw object after its device was lost. `recovery/` has one for each kind. */
export interface Restorer<R> {
  /**
   * Waits until another raw object serves than the one that failed.
   *
   * @throws {@link TinyloomError} where none will, or "aborted" when the signal fires first.
   */
  replaced(failed: R, signal: AbortSignal | undefined): Promise<void>;
  /** What the call gives, or "aborted" when the signal fires while a device is waited for. */
  orAborted<T>(call: Promise<T>, signal: AbortSignal | undefined): Promise<T>;
}

/** Gives back what a raw object holds, and the object, without waiting for the garbage collector. */
export function dispose(raw: Releasable): void {
  raw.release();
  raw.free();
}

/** What ends at present; what lives on it ends with it. */
let ending: string | undefined;

/**
 * Frees what lives on an object that ends.
 *
 * @param how - how they end, for whoever uses one of them later.
 */
export function endWith(how: string, owned: Iterable<{ free(): void }>): void {
  const outer = ending;
  ending ??= how;
  try {
    for (const one of [...owned]) one.free();
  } finally {
    ending = outer;
  }
}

/** Owns one raw object. */
export class RawHandle<R extends Releasable> {
  readonly #name: string;
  readonly #queue: CallQueue;
  readonly #life: InstanceLife;
  #raw: R | undefined;
  #gone: TinyloomError | undefined;
  #ended: AbortController | undefined;
  /** How it ended. */
  #how: string | undefined;
  /** Brings the raw object back after a lost device; undefined where nothing does. */
  restorer: Restorer<R> | undefined;

  /** @param life - of the instance that the raw object is in. */
  constructor(name: string, raw: R, queue: CallQueue, life: InstanceLife) {
    this.#name = name;
    this.#raw = raw;
    this.#queue = queue;
    this.#life = life;
  }

  /** The raw object, or code "freed". */
  get raw(): R {
    if (this.#gone) throw this.#gone;
    if (this.#raw === undefined) {
      throw new TinyloomError(
        "freed",
        `this ${this.#name} was ${this.#how}; create it again to use it`,
      );
    }
    return this.#raw;
  }

  /** Fires when it is freed: for waits of something else than the raw object. */
  get ended(): AbortSignal {
    this.#ended ??= new AbortController();
    if (this.freed) this.#ended.abort();
    return this.#ended.signal;
  }

  /** Whether `free` was called. */
  get freed(): boolean {
    return this.#raw === undefined;
  }

  /** A call that needs no turn in the queue. */
  callSync<T>(operation: (raw: R) => T): T {
    const { raw } = this;
    if (this.#life.panic) throw this.#life.panic;
    try {
      return operation(raw);
    } catch (error) {
      throw this.#life.panic ?? toError(error);
    }
  }

  /** A call in its turn. */
  async run<T>(operation: (raw: R) => T | Promise<T>, signal?: AbortSignal): Promise<T> {
    void this.raw;
    const call = this.#queue.run(() => this.#runRepeated(operation, this.restorer, signal));
    return this.#orAborted(call, signal);
  }

  /** A call that waits for no turn. */
  runOutOfTurn<T>(operation: (raw: R) => T | Promise<T>, signal?: AbortSignal): Promise<T> {
    return this.#orAborted(this.#runRepeated(operation, this.restorer, signal), signal);
  }

  /** A call that waits for no turn, and ends with the device. */
  runUnrepeated<T>(operation: (raw: R) => T | Promise<T>): Promise<T> {
    return this.#runRepeated(operation, undefined, undefined);
  }

  #orAborted<T>(call: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
    return this.restorer ? this.restorer.orAborted(call, signal) : call;
  }

  /** Makes a call on whatever raw object serves, and again when the restorer has another one. */
  async #runRepeated<T>(
    operation: (raw: R) => T | Promise<T>,
    restorer: Restorer<R> | undefined,
    signal: AbortSignal | undefined,
  ): Promise<T> {
    for (;;) {
      const { raw } = this;
      try {
        return await this.#life.guarded(() => operation(raw));
      } catch (thrown) {
        void this.raw; // an object freed meanwhile gives code "freed", whatever broke first
        const error = toError(thrown);
        if (!restorer || error.code !== "device-lost" || unrepeatable.has(error)) throw error;
        await restorer.replaced(raw, signal);
      }
    }
  }

  /** Takes another raw object, and ends the one before: itself in its turn, since calls may run on it. */
  swap(raw: R): void {
    const old = this.#raw;
    this.#raw = raw;
    old?.release();
    this.#queue.run(() => old?.free()).catch(() => undefined);
  }

  /** Every use from now on fails with this. */
  lose(error: TinyloomError): void {
    this.#gone = error;
  }

  /** Ends the object's life: at once for its users, and below when its running call has ended. */
  free(): void {
    const raw = this.#raw;
    if (raw === undefined) return;
    this.#raw = undefined;
    this.#how = ending ?? "freed";
    this.#ended?.abort();
    this.#queue.run(() => dispose(raw)).catch(() => undefined); // of a module that panicked
  }

  /** Resolves when the operations begun so far, and the release after them, have ended. */
  settled(): Promise<void> {
    return this.#queue.run(() => undefined);
  }
}
