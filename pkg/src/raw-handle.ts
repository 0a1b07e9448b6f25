/** Life, order and errors of the raw objects. */

import { TinyloomError, toError } from "./error.js";
import type { Releasable } from "./wasm-instance.js";

/** The life of one instance of the module. */
export class Life {
  /** Why it has ended: its memory is in whatever state a panic left. */
  panic: TinyloomError | undefined;
  /** Calls that have not ended, and after a panic never do. */
  readonly #running = new Set<(error: TinyloomError) => void>();

  /** The instance has panicked: every call, begun or to come, fails. */
  panicked(message: string): void {
    this.panic = new TinyloomError(
      "internal",
      `the wasm module failed, and what it held is lost (${message}); go on with another ` +
        "Runtime.create(), which loads the module again; please report it",
    );
    for (const reject of this.#running) reject(this.panic);
    this.#running.clear();
  }

  /** A call into the instance, which also ends when the instance does. */
  guarded<T>(operation: () => T | Promise<T>): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      if (this.panic) throw this.panic;
      this.#running.add(reject);
      const ended = () => this.#running.delete(reject);
      // Each further promise costs every call some microseconds.
      begun(operation).then(
        (value) => {
          ended();
          resolve(value);
        },
        (error: unknown) => {
          ended();
          reject(error);
        },
      );
    });
  }
}

/** What an operation gives, and what it throws, as a promise. */
function begun<T>(operation: () => T | Promise<T>): Promise<T> {
  try {
    return Promise.resolve(operation());
  } catch (error) {
    return Promise.reject(error);
  }
}

/** Failures after which a call cannot be made again. */
export const final = new WeakSet<TinyloomError>();

/** What brings objects back after their device was lost. */
export interface Guard<R> {
  /**
   * Waits until another raw object serves than the one that failed.
   *
   * @throws {@link TinyloomError} where none will, or "aborted" when the signal fires first.
   */
  back(error: TinyloomError, failed: R, signal: AbortSignal | undefined): Promise<void>;
  /** What the call gives, or "aborted" when the signal fires while a device is waited for. */
  unless<T>(call: Promise<T>, signal: AbortSignal | undefined): Promise<T>;
}

/** A call on whatever raw object serves, made again when that came back from a lost device. */
export async function lasting<R, T>(
  life: Life,
  raw: () => R,
  guard: () => Guard<R> | undefined,
  operation: (raw: R) => T | Promise<T>,
  signal?: AbortSignal,
): Promise<T> {
  for (;;) {
    const one = raw();
    try {
      return await life.guarded(() => operation(one));
    } catch (error) {
      void raw(); // an object freed meanwhile gives code "freed", whatever broke first
      const worded = toError(error);
      const by = guard();
      if (!by || worded.code !== "device-lost" || final.has(worded)) throw worded;
      await by.back(worded, one, signal);
    }
  }
}

/** Gives back what a raw object holds, and the object, without waiting for the garbage collector. */
export function end(raw: Releasable): void {
  raw.release();
  raw.free();
}

/** Runs operations one after the other. A model and its trainers share one. */
export class Queue {
  #tail: Promise<unknown> = Promise.resolve();

  /** Runs `operation` when all before it have ended, well or badly. */
  run<T>(operation: () => T | Promise<T>): Promise<T> {
    const result = this.#tail.then(operation);
    this.#tail = result.catch(() => undefined);
    return result;
  }
}

/** Owns one raw object: refuses its use after it was freed, and words every error. */
export class Handle<R extends Releasable> {
  readonly #name: string;
  readonly #queue: Queue;
  readonly #life: Life;
  #raw: R | undefined;
  #gone: TinyloomError | undefined;
  #ended: AbortController | undefined;
  /** Brings the raw object back. */
  guard: Guard<R> | undefined;

  /** @param life - of the instance that the raw object is in. */
  constructor(name: string, raw: R, queue: Queue, life: Life) {
    this.#name = name;
    this.#raw = raw;
    this.#queue = queue;
    this.#life = life;
  }

  /** The raw object, or code "freed". */
  get raw(): R {
    if (this.#gone) throw this.#gone;
    if (this.#raw === undefined) {
      throw new TinyloomError("freed", `this ${this.#name} was freed; create it again to use it`);
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
  now<T>(operation: (raw: R) => T): T {
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
    const { guard } = this;
    const call = this.#queue.run(() =>
      lasting(
        this.#life,
        () => this.raw,
        () => guard,
        operation,
        signal,
      ),
    );
    return guard ? guard.unless(call, signal) : call;
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
    this.#ended?.abort();
    this.#queue.run(() => end(raw)).catch(() => undefined); // of a module that panicked
  }

  /** Resolves when the operations begun so far, and the release behind them, have ended. */
  settled(): Promise<void> {
    return this.#queue.run(() => undefined);
  }
}
