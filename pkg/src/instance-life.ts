/** Adds an end to the calls into an instance of the module: a panic ends them too, begun or to come. */

import { TinyloomError } from "./error.js";

/** The life of one instance of the module. */
export class InstanceLife {
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
export function begun<T>(operation: () => T | Promise<T>): Promise<T> {
  try {
    return Promise.resolve(operation());
  } catch (error) {
    return Promise.reject(error);
  }
}
