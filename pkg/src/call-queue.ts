/** Adds an order to calls: those of a model, its adapters and their trainers run one after the other. */

/** Runs operations one after the other. A model and its trainers share one. */
export class CallQueue {
  #tail: Promise<unknown> = Promise.resolve();

  /** Runs `operation` when all before it have ended, well or badly. */
  run<T>(operation: () => T | Promise<T>): Promise<T> {
    const result = this.#tail.then(operation);
    this.#tail = result.catch(() => undefined);
    return result;
  }
}
