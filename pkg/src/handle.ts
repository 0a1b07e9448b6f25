/** Life, order and errors of the raw objects. */

import { TinyloomError, toError } from "./error.js";
import type { Releasable } from "./raw.js";

/** Calls into the module that have not ended. */
const running = new Set<(error: TinyloomError) => void>();
let panic: TinyloomError | undefined;

/**
 * Called when the module has panicked. What was running there never ends, and its memory is in
 * whatever state the panic left: every call, begun or to come, fails.
 */
export function modulePanicked(message: string): void {
  panic = new TinyloomError(
    "internal",
    `the wasm module failed and cannot go on (${message}); reload the page, and please report it`,
  );
  for (const reject of running) reject(panic);
  running.clear();
}

/** A call into the module, which also ends when the module does. */
export function guarded<T>(operation: () => T | Promise<T>): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    if (panic) throw panic;
    running.add(reject);
    const ended = () => running.delete(reject);
    (async () => operation())().finally(ended).then(resolve, reject);
  });
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
  #raw: R | undefined;

  constructor(name: string, raw: R, queue: Queue) {
    this.#name = name;
    this.#raw = raw;
    this.#queue = queue;
  }

  /** The raw object, or code "freed". */
  get raw(): R {
    if (this.#raw === undefined) {
      throw new TinyloomError("freed", `this ${this.#name} was freed; create it again to use it`);
    }
    return this.#raw;
  }

  /** Whether `free` was called. */
  get freed(): boolean {
    return this.#raw === undefined;
  }

  /** A call that needs no turn in the queue. */
  now<T>(operation: (raw: R) => T): T {
    const { raw } = this;
    if (panic) throw panic;
    try {
      return operation(raw);
    } catch (error) {
      throw panic ?? toError(error);
    }
  }

  /** A call in its turn. An object freed meanwhile gives code "freed", whatever broke first. */
  async run<T>(operation: (raw: R) => T | Promise<T>): Promise<T> {
    void this.raw;
    return this.#queue.run(async () => {
      const { raw } = this;
      try {
        return await guarded(() => operation(raw));
      } catch (error) {
        void this.raw;
        throw toError(error);
      }
    });
  }

  /** Ends the object's life: at once for its users, and below when its running call has ended. */
  free(): void {
    const raw = this.#raw;
    if (raw === undefined) return;
    this.#raw = undefined;
    this.#queue.run(() => end(raw)).catch(() => undefined); // of a module that panicked
  }

  /** Resolves when the operations begun so far, and the release behind them, have ended. */
  settled(): Promise<void> {
    return this.#queue.run(() => undefined);
  }
}
