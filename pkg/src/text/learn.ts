/** Learns the merges of byte-pair encoding (Sennrich, Haddow and Birch, 2016). */

import { Heap, pairKey, WORDS } from "./bpe.js";

/** Different words beyond which those seen once are forgotten: the most frequent ones are what is learned. */
const MOST_WORDS = 4_000_000;

/** A word's ids, which merges shorten, and how often it occurs. */
interface Word {
  ids: number[];
  readonly count: number;
}

/** Counts the words of a text, and then learns their merges. */
export class Learner {
  readonly #counts = new Map<string, number>();
  readonly #special: readonly string[];
  #rest = "";

  /** @param special - tokens of their own, which are no part of the text. */
  constructor(special: readonly string[]) {
    this.#special = special;
  }

  /** Takes a piece of the text. */
  add(text: string): void {
    const whole = this.#rest + text;
    // The last word may go on in the next piece; no word has a space after something else.
    const cut = whole.search(/\s\S*$/);
    const at = cut > 0 && whole.length - cut < 1 << 16 ? cut : whole.length;
    this.#rest = whole.slice(at);
    this.#count(whole.slice(0, at));
  }

  /** The text has ended, or begins again. */
  flush(): void {
    this.#count(this.#rest);
    this.#rest = "";
  }

  #count(text: string): void {
    const counts = this.#counts;
    let parts = [text];
    for (const special of this.#special) parts = parts.flatMap((part) => part.split(special));
    for (const part of parts) {
      for (const word of part.match(WORDS) ?? []) counts.set(word, (counts.get(word) ?? 0) + 1);
    }
    if (counts.size <= MOST_WORDS) return;
    for (const [word, count] of counts) if (count === 1) counts.delete(word);
  }

  /**
   * The merges: pairs of ids, of which the first becomes id 256. Bytes have the ids 0 to 255. Of pairs
   * that occur equally often the one with the lower ids is merged first. It stops now and then and says
   * how many merges it has.
   */
  *learn(most: number, minFrequency: number): Generator<number, Uint32Array, undefined> {
    this.flush();
    const utf8 = new TextEncoder();
    const words: Word[] = [];
    for (const [word, count] of this.#counts) {
      if (word.length > 1 << 10) continue; // no word, but a run of one kind of characters
      words.push({ ids: Array.from(utf8.encode(word)), count });
    }
    this.#counts.clear();
    const pairs = new Pairs(words);
    const merges: number[] = [];
    let work = yield* pairs.fill();
    while (merges.length / 2 < most) {
      const best = pairs.best();
      if (best === undefined || best.count < minFrequency) break;
      merges.push(best.left, best.right);
      work += pairs.merge(best.left, best.right, 255 + merges.length / 2);
      if (work < SLICE) continue;
      work = 0;
      yield merges.length / 2;
    }
    return Uint32Array.from(merges);
  }
}

/** Words that are changed between two stops. */
const SLICE = 2000;

/** Counts of the pairs of ids, kept up to date as pairs are merged. */
class Pairs {
  readonly #words: readonly Word[];
  readonly #counts = new Map<number, number>();
  /** The words in which a pair was at some time, some of them several times. */
  readonly #where = new Map<number, number[]>();
  /** Counts and pairs, the most frequent first; those that are out of date are corrected when found. */
  readonly #heap = new Heap();
  /** Pairs by their number in the heap. */
  readonly #keys: number[] = [];
  readonly #numbers = new Map<number, number>();

  constructor(words: readonly Word[]) {
    this.#words = words;
  }

  /** Counts the pairs of all words. */
  *fill(): Generator<number, number, undefined> {
    for (let index = 0; index < this.#words.length; index++) {
      this.#change(index, 1);
      if (index % SLICE === SLICE - 1) yield 0;
    }
    const keys = [...this.#counts.keys()].sort((a, b) => a - b);
    for (const key of keys) this.#offer(key);
    return 0;
  }

  /** Adds the pairs of a word to the counts, or takes them away. */
  #change(index: number, sign: 1 | -1, changed?: Set<number>): void {
    const { ids, count } = this.#words[index] as Word;
    for (let i = 0; i + 1 < ids.length; i++) {
      const key = pairKey(ids[i] as number, ids[i + 1] as number);
      this.#counts.set(key, (this.#counts.get(key) ?? 0) + sign * count);
      changed?.add(key);
      if (sign < 0) continue;
      const where = this.#where.get(key);
      if (where === undefined) this.#where.set(key, [index]);
      else if (where.at(-1) !== index) where.push(index);
    }
  }

  #offer(key: number): void {
    const count = this.#counts.get(key) ?? 0;
    if (count <= 0) return;
    let number = this.#numbers.get(key);
    if (number === undefined) {
      number = this.#keys.length;
      this.#keys.push(key);
      this.#numbers.set(key, number);
    }
    this.#heap.push(-count * NUMBERS + number);
  }

  /** The most frequent pair. */
  best(): { left: number; right: number; count: number } | undefined {
    for (let top = this.#heap.pop(); top !== undefined; top = this.#heap.pop()) {
      const count = -Math.floor(top / NUMBERS);
      const key = this.#keys[top + count * NUMBERS] as number;
      if (this.#counts.get(key) !== count) continue; // it was offered again with its new count
      return { left: Math.floor(key / 0x20_0000), right: key % 0x20_0000, count };
    }
    return undefined;
  }

  /** Makes a pair one id; gives how many words it changed. */
  merge(left: number, right: number, made: number): number {
    const key = pairKey(left, right);
    const where = this.#where.get(key) ?? [];
    const changed = new Set<number>();
    let done = 0;
    for (const index of where) {
      const word = this.#words[index] as Word;
      const ids = merged(word.ids, left, right, made);
      if (ids.length === word.ids.length) continue;
      this.#change(index, -1, changed);
      word.ids = ids;
      this.#change(index, 1, changed);
      done += 1;
    }
    this.#where.delete(key);
    this.#counts.delete(key);
    changed.delete(key);
    // In the order of their ids: pairs of equal counts come in the order in which they were first seen.
    for (const one of [...changed].sort((a, b) => a - b)) {
      if (this.#counts.get(one) === 0) this.#forget(one);
      else this.#offer(one);
    }
    return done;
  }

  #forget(key: number): void {
    this.#counts.delete(key);
    this.#where.delete(key);
  }
}

/** Pairs at most, for a count and a pair's number to be one number. */
const NUMBERS = 2 ** 24;

function merged(ids: readonly number[], left: number, right: number, made: number): number[] {
  const out: number[] = [];
  for (let i = 0; i < ids.length; i++) {
    if (ids[i] === left && ids[i + 1] === right) {
      out.push(made);
      i += 1;
    } else out.push(ids[i] as number);
  }
  return out;
}
