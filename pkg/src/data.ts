/** The memory of a dataset. */

import type { DrawOptions } from "./drawn.js";
import { TinyloomError, toError } from "./error.js";
import { end } from "./handle.js";
import type { RawDataset, RawModule } from "./raw.js";
import type { TokenStore } from "./text/store.js";

/** A dataset's tokens. They stay in memory until `free` was called and every earlier reader has ended. */
export class Data {
  readonly hash: string;
  /** What decides which tokens a step draws, beside the tokens. */
  readonly draws: DrawOptions;
  /** The options as JSON. */
  readonly #json: string;
  #store: TokenStore | undefined;
  #raw: RawDataset | undefined;
  /** The instance of the module that it is in. */
  #module: RawModule | undefined;
  #freed = false;
  #holders = 0;
  readonly #own = this.hold();

  constructor(store: TokenStore, options: object, draws: DrawOptions) {
    this.#store = store;
    this.hash = store.hash;
    this.#json = JSON.stringify(options);
    this.draws = draws;
  }

  /**
   * The tokens, or code "freed".
   *
   * @param evenFreed - for a reader that began before they were freed.
   */
  store(evenFreed = false): TokenStore {
    if (this.#store && (evenFreed || !this.#freed)) return this.#store;
    throw new TinyloomError("freed", "this Dataset was freed; create it again to use it");
  }

  /** The raw dataset, made at its first use in an instance of the module. */
  raw(module: RawModule): RawDataset {
    const store = this.store(true);
    if (this.#module === module) return this.#raw as RawDataset;
    try {
      this.#raw = new module.RawDataset(store, store.packed?.starts, this.#json);
      this.#module = module;
    } catch (error) {
      throw toError(error);
    }
    return this.#raw;
  }

  /** Keeps the tokens until the function that this gives is called; more calls of it do nothing. */
  hold(): () => void {
    let done = false;
    this.#holders++;
    return () => {
      if (done) return;
      done = true;
      if (--this.#holders > 0) return;
      // In an instance that panicked nothing can be ended any more.
      if (this.#raw && !this.#module?.panic) end(this.#raw);
      this.#raw = this.#store = undefined;
    };
  }

  /** Does work that reads the tokens. */
  async during<T>(work: () => Promise<T>): Promise<T> {
    const release = this.hold();
    try {
      return await work();
    } finally {
      release();
    }
  }

  /** Ends it for new calls. */
  free(): void {
    this.#freed = true;
    this.#own();
  }
}
