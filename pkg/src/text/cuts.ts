/** How many documents a step reads in pieces. */

import type { TokenReader } from "../raw-types.js";
import type { Packed, TokenStore } from "./store.js";

/**
 * Counts documents that are longer than a piece, as their pieces are read. The module reads a piece's tokens when it
 * packs them into a batch, so what is counted is what the batches of a step have: a function of their numbers, the
 * same after a resume.
 */
export class Cuts {
  /** What the module reads from. */
  readonly reader: TokenReader;
  readonly #starts: Uint32Array;
  /** First tokens of the documents. */
  readonly #seen = new Set<number>();

  private constructor(store: TokenStore, { starts }: Packed, length: number) {
    this.#starts = starts;
    this.reader = {
      length: store.length,
      masked: store.masked === true,
      read: (start, tokens, targets) => {
        if (!targets) this.#note(start, store.length, length);
        return store.read(start, tokens, targets);
      },
    };
  }

  /** What counts the cuts of steps with pieces of that many tokens; undefined where nothing is cut. */
  static of(store: TokenStore, length: number): Cuts | undefined {
    const { packed } = store;
    return packed && packed.longest > length ? new Cuts(store, packed, length) : undefined;
  }

  /** A step begins. */
  begin(): void {
    this.#seen.clear();
  }

  /** Documents of which the step has read a piece that is not the whole. Each counts once. */
  get count(): number {
    return this.#seen.size;
  }

  /** A piece that begins there is read. */
  #note(start: number, tokens: number, length: number): void {
    let [low, high] = [0, this.#starts.length - 1];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if ((this.#starts[middle] as number) <= start) low = middle;
      else high = middle - 1;
    }
    const begin = this.#starts[low] as number;
    // The last token of a document is only a target.
    if ((this.#starts[low + 1] ?? tokens) - begin - 1 > length) this.#seen.add(begin);
  }
}
