/** The memory of a dataset. */

import type { DrawOptions } from "./dataset-types.js";
import { TinyloomError, toError } from "./error.js";
import { invalid } from "./options.js";
import { dispose } from "./raw-handle.js";
import type { RawDataset, RawModule } from "./raw-types.js";
import type { Cuts } from "./text/cuts.js";
import type { TokenStore } from "./text/store.js";

/** What a dataset's memory is made of. */
interface Parts {
  readonly store: TokenStore;
  readonly options: object;
  readonly draws: DrawOptions;
  /** Whether no document may be cut, since the caller has given no length. */
  readonly whole: boolean;
  /** Options that give the tokens of earlier versions. */
  readonly before: readonly string[];
}

/** Names the raw dataset that is all for validation. */
const ALL = Symbol();

/** A raw dataset, and the instance of the module that it is in. */
interface Made {
  readonly raw: RawDataset;
  readonly module: RawModule;
}

/** A dataset's tokens. They stay in memory until `free` was called and every earlier reader has ended. */
export class Data {
  readonly hash: string;
  /** What decides which tokens a step draws, beside the tokens. */
  readonly draws: DrawOptions;
  /** Options that give the tokens of earlier versions. */
  readonly before: readonly string[];
  /** The options as JSON. */
  readonly #json: string;
  readonly #whole: boolean;
  #store: TokenStore | undefined;
  /** By who counts what is cut of it; undefined is for all others, and `ALL` for evaluations of the whole. */
  readonly #made = new Map<Cuts | typeof ALL | undefined, Made>();
  /** What keeps something that reads the tokens. */
  readonly #keepers = new Set<() => void>();
  #freed = false;
  #holders = 0;
  readonly #own = this.hold();

  constructor({ store, options, draws, whole, before }: Parts) {
    this.#store = store;
    this.hash = store.hash;
    const { sequenceLength } = draws;
    this.#json = JSON.stringify(whole ? { ...options, sequenceLength } : options);
    this.#whole = whole;
    this.draws = draws;
    this.before = before;
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
  raw(module: RawModule, cuts?: Cuts): RawDataset {
    return this.#raw(module, cuts, this.#json, cuts?.reader);
  }

  /** The same with all of the tokens for validation. */
  whole(module: RawModule): RawDataset {
    const options = { ...JSON.parse(this.#json), validationFraction: 1 };
    return this.#raw(module, ALL, JSON.stringify(options));
  }

  #raw(
    module: RawModule,
    of: Cuts | typeof ALL | undefined,
    json: string,
    reader = this.store(true).reader,
  ): RawDataset {
    const before = this.#made.get(of);
    if (before?.module === module) return before.raw;
    try {
      const raw = new module.RawDataset(reader, this.store(true).packed?.starts, json);
      this.#made.set(of, { raw, module });
      return raw;
    } catch (error) {
      throw toError(error);
    }
  }

  /** Whoever counted cuts does not draw any more. */
  drop(cuts: Cuts): void {
    endOf(this.#made.get(cuts));
    this.#made.delete(cuts);
  }

  /** Refuses steps into which the longest conversation does not fit. */
  expectFits(tokensPerStep: number): void {
    const { packed } = this.store(true);
    if (!this.#whole || !packed || packed.longest <= tokensPerStep) return;
    const { longest, starts } = packed;
    const cut = packed.longer(tokensPerStep);
    throw invalid(
      `the longest conversation takes ${longest} places of a step, ${longest - tokensPerStep} more than tokensPerStep, ` +
        `${tokensPerStep}, and ${cut} of ${starts.length} conversations take more: raise the trainer's tokensPerStep to ${longest} or ` +
        `more, leave long conversations out, or give the dataset sequenceLength: ${tokensPerStep}, which cuts them into pieces that ` +
        "do not see each other",
    );
  }

  /** Keeps the tokens until the function that this gives is called; more calls of it do nothing. */
  hold(): () => void {
    let done = false;
    this.#holders++;
    return () => {
      if (done) return;
      done = true;
      if (--this.#holders > 0) return;
      for (const made of this.#made.values()) endOf(made);
      this.#made.clear();
      this.#store = undefined;
      for (const forget of this.#keepers) forget();
      this.#keepers.clear();
    };
  }

  /**
   * Calls a function when the tokens are let go of.
   *
   * @returns what takes that back.
   */
  whenReleased(forget: () => void): () => void {
    this.#keepers.add(forget);
    return () => void this.#keepers.delete(forget);
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

/** In an instance that panicked nothing can be ended any more. */
function endOf(made: Made | undefined): void {
  if (made && !made.module.panic) dispose(made.raw);
}
