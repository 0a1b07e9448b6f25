/** Byte-pair encoding of bytes: text to ids and back, and the file that says how. */

/**
 * The words within which pairs are merged, as GPT-2 has them (Radford and others, 2019). White space is
 * that of Unicode, which JavaScript's `\s` is not.
 */
export const WORDS =
  /'(?:[stmd]|re|ve|ll)| ?\p{L}+| ?\p{N}+| ?[^\p{White_Space}\p{L}\p{N}]+|\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+/gu;

/** Two ids as one number. */
export const pairKey = (left: number, right: number) => left * 0x20_0000 + right;

/** The character that stands for each byte in the files: printable ones for themselves. */
export const BYTE_CHARACTERS: readonly string[] = byteCharacters();

const BYTES_OF_CHARACTERS: ReadonlyMap<string, number> = new Map(
  BYTE_CHARACTERS.map((character, byte) => [character, byte]),
);

function byteCharacters(): string[] {
  const printable = (byte: number) =>
    (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
  let next = 256;
  return Array.from({ length: 256 }, (_, byte) =>
    String.fromCharCode(printable(byte) ? byte : next++),
  );
}

/** What a token of byte-level BPE stands for; one with other characters stands for itself, as in Hugging Face's. */
export function byteLevelBytes(token: string): Uint8Array<ArrayBuffer> {
  const bytes = Array.from(token, (character) => BYTES_OF_CHARACTERS.get(character));
  return bytes.includes(undefined)
    ? new TextEncoder().encode(token)
    : Uint8Array.from(bytes as number[]);
}

/** How words become ids. */
export interface BpeModel {
  /** The id of each byte. */
  readonly bytes: Uint32Array;
  /** Each merge in its order: left id, right id, and the id that they become. */
  readonly merges: Uint32Array;
  /** Special tokens and their ids: they are found in texts before anything else. */
  readonly special: ReadonlyMap<string, number>;
  /** Those of them that are no special tokens, and only stand for their text. */
  readonly plain?: ReadonlySet<string>;
  readonly vocabSize: number;
  /** The bytes of each id but the special tokens'. */
  readonly pieces: readonly Uint8Array[];
}

/** Words whose ids are remembered, at most. */
const REMEMBERED = 1 << 17;
/** Bytes of a word beyond which a heap finds the next merge. */
const SHORT = 48;

/** Encodes and decodes with a model. */
export class Bpe {
  readonly model: BpeModel;
  readonly #ranks = new Map<number, number>();
  /** The bytes of each id. */
  readonly #bytes: Uint8Array[];
  readonly #words = new Map<string, number | readonly number[]>();
  readonly #special: RegExp | undefined;
  readonly #specialIds: ReadonlySet<number>;
  readonly #utf8 = new TextEncoder();

  constructor(model: BpeModel) {
    this.model = model;
    const { merges, special, pieces } = model;
    this.#bytes = [...pieces];
    for (let rank = 0; rank * 3 < merges.length; rank++) {
      const [left, right] = merges.subarray(rank * 3) as unknown as [number, number];
      const key = pairKey(left, right);
      if (!this.#ranks.has(key)) this.#ranks.set(key, rank);
    }
    for (const [text, id] of special) this.#bytes[id] = this.#bytesOfSpecial(text, id);
    const control = [...special].filter(([text]) => !model.plain?.has(text));
    this.#specialIds = new Set(control.map(([, id]) => id));
    const texts = [...special.keys()].sort((a, b) => b.length - a.length);
    if (texts.length > 0) this.#special = new RegExp(`(${texts.map(escaped).join("|")})`);
  }

  /** The bytes of an id; none for one that there is not. */
  bytesOf(id: number): Uint8Array {
    return this.#bytes[id] ?? new Uint8Array();
  }

  /**
   * A special token is decoded by its characters, as in Python. Tokenizers that were trained here before have some that
   * spell another token so; these stand for themselves.
   */
  #bytesOfSpecial(text: string, own: number): Uint8Array {
    const utf8 = this.#utf8.encode(text);
    const bytes = byteLevelBytes(text);
    if (String(bytes) === String(utf8)) return bytes;
    const other = this.model.pieces.findIndex((piece) => String(piece) === String(bytes));
    return other < 0 || other === own ? bytes : utf8;
  }

  /** Whether an id is of a special token that is no text. */
  isSpecial(id: number): boolean {
    return this.#specialIds.has(id);
  }

  /** @param parse - whether special tokens in the text are tokens; else they are text. */
  encode(text: string, parse = true): Uint32Array {
    const { special, plain } = this.model;
    const ids: number[] = [];
    const parts = this.#special ? text.split(this.#special) : [text];
    let before = "";
    parts.forEach((part, index) => {
      if (index % 2 === 0 || (!parse && !plain?.has(part))) {
        before += part;
        return;
      }
      this.#encodeText(before, ids);
      before = "";
      ids.push(special.get(part) as number);
    });
    this.#encodeText(before, ids);
    return Uint32Array.from(ids);
  }

  #encodeText(text: string, ids: number[]): void {
    for (const word of text.match(WORDS) ?? []) {
      const known = this.#words.get(word);
      if (typeof known === "number") {
        ids.push(known);
        continue;
      }
      const found = known ?? this.#encodeWord(word);
      for (const id of found) ids.push(id);
    }
  }

  #encodeWord(word: string): readonly number[] {
    const bytes = this.#utf8.encode(word);
    const first = Array.from(bytes, (byte) => this.model.bytes[byte] as number);
    const ids = first.length <= SHORT ? this.#mergeShort(first) : this.#mergeLong(first);
    if (first.length > SHORT * 2) return ids;
    if (this.#words.size >= REMEMBERED) this.#words.clear();
    this.#words.set(word, ids.length === 1 ? (ids[0] as number) : ids);
    return ids;
  }

  #rank(left: number | undefined, right: number | undefined): number {
    if (left === undefined || right === undefined) return Number.POSITIVE_INFINITY;
    return this.#ranks.get(pairKey(left, right)) ?? Number.POSITIVE_INFINITY;
  }

  /** Merges the pair of the lowest rank, the first of several, until there is none. */
  #mergeShort(ids: number[]): number[] {
    for (;;) {
      let [best, at] = [Number.POSITIVE_INFINITY, 0];
      for (let i = 0; i + 1 < ids.length; i++) {
        const rank = this.#rank(ids[i], ids[i + 1]);
        if (rank < best) [best, at] = [rank, i];
      }
      if (best === Number.POSITIVE_INFINITY) return ids;
      ids.splice(at, 2, this.model.merges[best * 3 + 2] as number);
    }
  }

  /** Merges in the same order with a heap of the pairs, because a run of spaces may have a million bytes. */
  #mergeLong(ids: number[]): number[] {
    const none = -1;
    const next = Int32Array.from(ids, (_, i) => (i + 1 < ids.length ? i + 1 : none));
    const before = Int32Array.from(ids, (_, i) => i - 1);
    const gone = -1;
    const heap = new Heap();
    const offer = (at: number) => {
      if (at < 0 || (next[at] as number) < 0) return;
      const rank = this.#rank(ids[at], ids[next[at] as number]);
      if (rank < Number.POSITIVE_INFINITY) heap.push(rank * PLACES + at);
    };
    for (let i = 0; i < ids.length; i++) offer(i);
    for (let top = heap.pop(); top !== undefined; top = heap.pop()) {
      const [rank, at] = [Math.floor(top / PLACES), top % PLACES];
      const right = next[at] as number;
      if (ids[at] === gone || right < 0 || this.#rank(ids[at], ids[right]) !== rank) continue;
      ids[at] = this.model.merges[rank * 3 + 2] as number;
      ids[right] = gone;
      next[at] = next[right] as number;
      if ((next[at] as number) >= 0) before[next[at] as number] = at;
      offer(before[at] as number);
      offer(at);
    }
    return ids.filter((id) => id !== gone);
  }
}

/** Places in a word at most, for a rank and a place to be one number. */
const PLACES = 2 ** 30;

/** The least number first. */
export class Heap {
  readonly #numbers: number[] = [];

  push(number: number): void {
    const heap = this.#numbers;
    let at = heap.length;
    while (at > 0) {
      const above = (at - 1) >> 1;
      if ((heap[above] as number) <= number) break;
      heap[at] = heap[above] as number;
      at = above;
    }
    heap[at] = number;
  }

  pop(): number | undefined {
    const heap = this.#numbers;
    const top = heap[0];
    const last = heap.pop();
    if (last === undefined || heap.length === 0) return top;
    let at = 0;
    for (;;) {
      let below = at * 2 + 1;
      if (below + 1 < heap.length && (heap[below + 1] as number) < (heap[below] as number)) below++;
      if (below >= heap.length || (heap[below] as number) >= last) break;
      heap[at] = heap[below] as number;
      at = below;
    }
    heap[at] = last;
    return top;
  }
}

export function joined(parts: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

const escaped = (text: string) => text.replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&");
