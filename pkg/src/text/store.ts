/** Tokens of a dataset, in segments of the narrowest width that fits each. */

import type { TokenReader } from "../raw-types.js";
import { IGNORE_INDEX } from "../tokens.js";

/** An array of ids in one of three widths. */
export type Ids = Uint8Array | Uint16Array | Uint32Array;

/** Tokens of a segment. */
export const SEGMENT = 1 << 20;

/** Documents that lie end to end. */
export interface Packed {
  /** The first token of each. */
  readonly starts: Uint32Array;
  /** How many of the first are for training. */
  trained(validationFraction: number): number;
  /** Inputs of the longest. */
  readonly longest: number;
  /** How many have more inputs than that. */
  longer(length: number): number;
  /** Steps that the first of them fill, in their order. */
  steps(documents: number, length: number, tokensPerStep: number): number;
}

/** Tokens that are appended and then read. Each segment is as wide as its largest id needs. */
export class TokenStore implements TokenReader {
  declare readonly masked?: boolean;
  /** Ids with which a window of one text begins, in the place of its first tokens. Documents have theirs among their tokens. */
  windowStart: readonly number[] = [];
  readonly #segments: Ids[] = [];
  #staged = new Uint32Array(1024);
  #used = 0;
  #full = 0;
  readonly #state = new Uint32Array([0x9e3779b9, 0x85ebca6b]);

  get length(): number {
    return this.#full * SEGMENT + this.#used;
  }

  /** Where documents begin and how they are packed; undefined where the tokens are one text. */
  get packed(): Packed | undefined {
    return undefined;
  }

  /** Sixteen hexadecimal digits: a hash of the ids, in whichever width they were given. */
  get hash(): string {
    const { windowStart } = this;
    return this.hashWith(windowStart.length > 0 ? [...windowStart, windowStart.length] : []);
  }

  /** What a trainer reads its windows or documents from. */
  get reader(): TokenReader {
    return this.windowStart.length > 0 ? new WindowReader(this, this.windowStart) : this;
  }

  /** The hash of the ids and of further numbers. */
  protected hashWith(numbers: readonly number[]): string {
    const state = this.#state.slice();
    mix(state, numbers);
    mix(state, [this.length]);
    return Array.from(state, (word) => finished(word).toString(16).padStart(8, "0")).join("");
  }

  append(ids: ArrayLike<number>): void {
    mix(this.#state, ids);
    for (let at = 0; at < ids.length; ) {
      const take = Math.min(ids.length - at, SEGMENT - this.#used);
      this.#room(this.#used + take);
      const part = take === ids.length ? ids : (ids as unknown as Uint32Array).slice(at, at + take);
      this.#staged.set(part, this.#used);
      this.#used += take;
      at += take;
      if (this.#used === SEGMENT) {
        this.#segments.push(narrow(this.#staged));
        [this.#used, this.#full] = [0, this.#full + 1];
      }
    }
  }

  /** Nothing is appended any more: the last segment takes what it needs. */
  end(): this {
    if (this.#used > 0) this.#segments.push(narrow(this.#staged.subarray(0, this.#used)));
    this.#staged = new Uint32Array();
    return this;
  }

  read(start: number, length: number, _targets?: boolean): Uint32Array {
    const out = new Uint32Array(length);
    for (let done = 0; done < length; ) {
      const at = start + done;
      const segment = this.#segments[Math.floor(at / SEGMENT)] as Ids;
      const part = segment.subarray(at % SEGMENT, (at % SEGMENT) + length - done);
      out.set(part, done);
      done += part.length;
    }
    return out;
  }

  #room(tokens: number): void {
    if (tokens <= this.#staged.length) return;
    const grown = new Uint32Array(Math.min(SEGMENT, Math.max(tokens, this.#staged.length * 4)));
    grown.set(this.#staged.subarray(0, this.#used));
    this.#staged = grown;
  }
}

/**
 * One text whose windows begin as the model knows a text. The start takes the place of a window's first tokens, so a
 * window keeps its length, its last target, and its place in the text. Neither the start nor the token after it
 * is a target: a window begins anywhere, and no text begins in the middle of a sentence.
 */
class WindowReader implements TokenReader {
  readonly #store: TokenStore;
  readonly #start: readonly number[];

  constructor(store: TokenStore, start: readonly number[]) {
    [this.#store, this.#start] = [store, start];
  }

  get length(): number {
    return this.#store.length;
  }

  /** A window, or its targets. A rest of the text that has no room for more than the start is read without it. */
  read(start: number, length: number, targets: boolean): Uint32Array {
    const out = this.#store.read(start, length);
    if (length <= this.#start.length) return out;
    if (targets) out.fill(IGNORE_INDEX, 0, this.#start.length);
    else out.set(this.#start);
    return out;
  }
}

/** The ids in the narrowest width that fits. */
function narrow(ids: Uint32Array): Ids {
  let most = 0;
  for (const id of ids) if (id > most) most = id;
  if (most < 1 << 8) return new Uint8Array(ids);
  return most < 1 << 16 ? new Uint16Array(ids) : ids.slice();
}

/** Takes words into the two halves of a hash: the steps of MurmurHash3 (Appleby), with two seeds. */
function mix(state: Uint32Array, words: ArrayLike<number>): void {
  let [a, b] = [state[0] as number, state[1] as number];
  for (let i = 0; i < words.length; i++) {
    let k = Math.imul(words[i] as number, 0xcc9e2d51);
    k = Math.imul((k << 15) | (k >>> 17), 0x1b873593);
    a ^= k;
    a = (Math.imul((a << 13) | (a >>> 19), 5) + 0xe6546b64) | 0;
    b ^= (k << 16) | (k >>> 16);
    b = (Math.imul((b << 17) | (b >>> 15), 9) + 0x38b34ae5) | 0;
  }
  state[0] = a;
  state[1] = b;
}

function finished(word: number): number {
  let h = word;
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
}
