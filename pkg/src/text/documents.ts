/** Tokens of documents, and which of them are learned. */

import { IGNORE_INDEX } from "../tokens.js";
import { type Packed, TokenStore } from "./store.js";

/** Tokens with the documents' starts. The hash is also that of these, and of what is learned. */
export class DocumentStore extends TokenStore {
  override masked = false;
  readonly #starts: number[] = [];
  /** Ranges of the tokens that are learned: begin and end, alternating. Undefined where all are. */
  #learned: number[] | undefined;
  #packed: Packed | undefined;

  /** The ranges of the tokens that are learned, ascending; undefined where all are. */
  get learned(): readonly number[] | undefined {
    return this.#learned;
  }

  override get hash(): string {
    const learned = this.#learned ?? [];
    return this.hashWith([this.#starts.length, ...[this.#starts, learned].flat(), learned.length]);
  }

  override get packed(): Packed {
    this.#packed ??= packedOf(Uint32Array.from(this.#starts), this.length);
    return this.#packed;
  }

  /** The first token of the document that was begun last. */
  get begun(): number | undefined {
    return this.#starts.at(-1);
  }

  /** Begins a document with the next token. */
  begin(): void {
    this.#starts.push(this.length);
  }

  /** Takes back the document that was begun last, if no token has come since. */
  drop(): void {
    if (this.#starts.at(-1) === this.length) this.#starts.pop();
  }

  /** Only the tokens of such ranges are learned; they ascend. */
  learn(begin: number, end: number): void {
    this.#learned ??= [];
    this.masked = true;
    if (end > begin) this.#learned.push(begin, end);
  }

  override read(start: number, length: number, targets: boolean): Uint32Array {
    const out = super.read(start, length);
    if (targets && this.#learned) leaveOut(out, start, this.#learned);
    return out;
  }
}

function packedOf(starts: Uint32Array, tokens: number): Packed {
  const inputs = (i: number) => (starts[i + 1] ?? tokens) - (starts[i] as number) - 1;
  return {
    starts,
    longest: starts.reduce((most, _, i) => Math.max(most, inputs(i)), 0),
    trained(validationFraction) {
      const wanted = tokens - Math.trunc(tokens * validationFraction);
      const first = starts.findIndex((start) => start >= wanted);
      if (first >= 0) return first;
      return validationFraction > 0 ? Math.max(0, starts.length - 1) : starts.length;
    },
    longer: (length) => starts.reduce((sum, _, i) => sum + Number(inputs(i) > length), 0),
    steps(documents, length, tokensPerStep) {
      const most = Math.min(length, tokensPerStep);
      let [steps, used] = [0, tokensPerStep];
      for (let i = 0; i < documents; i++) {
        for (let left = inputs(i); left > 0; left -= most) {
          const piece = Math.min(left, most);
          if (used + piece > tokensPerStep) [steps, used] = [steps + 1, 0];
          used += piece;
        }
      }
      return steps;
    },
  };
}

/** Puts IGNORE_INDEX where a token lies in none of the ranges, which ascend. */
function leaveOut(out: Uint32Array, start: number, ranges: readonly number[]): void {
  let [low, high] = [0, ranges.length / 2];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((ranges[middle * 2 + 1] as number) <= start) low = middle + 1;
    else high = middle;
  }
  let from = 0;
  for (let i = low * 2; from < out.length; i += 2) {
    const begin = (ranges[i] ?? Number.POSITIVE_INFINITY) - start;
    out.fill(IGNORE_INDEX, from, Math.max(from, Math.min(begin, out.length)));
    from = Math.max(0, (ranges[i + 1] ?? Number.POSITIVE_INFINITY) - start);
  }
}
