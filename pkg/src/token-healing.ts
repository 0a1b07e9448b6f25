/**
 * Token healing: a prompt that ends within a word is continued as if it had been cut there as a text, and not as
 * tokens (S. Lundberg, "The art of prompt design: prompt boundaries and token healing", 2023).
 */

import { tokenizersPart } from "./lazy.js";
import { inspect, invalid, isA } from "./options.js";
import type { Biases } from "./token-bias.js";
import { ByteTokenizer } from "./tokenizer.js";
import type { TextDecoding } from "./tokenizer-types.js";

/** The vocabulary as bytes. */
interface Vocabulary {
  /** What each id spells; undefined of special tokens and of ids that there are not. */
  readonly spelled: readonly (Uint8Array | undefined)[];
  /** Ids of bytes below 128 that stand for a character which other tokens spell too, such as `<0x20>`. */
  readonly fallback: ReadonlySet<number>;
  /** Ids by the first byte that they spell. */
  readonly byFirst: readonly (readonly number[])[];
}

/** What is read of tokenizer.json here. */
interface Json {
  readonly model: { readonly type?: string; readonly vocab: unknown };
  readonly decoder?: unknown;
  readonly added_tokens?: readonly {
    readonly id: number;
    readonly content: string;
    readonly special?: boolean;
  }[];
}

const known = new WeakMap<object, Vocabulary>();

/** A prompt whose end is drawn anew. */
export interface Healing {
  /** What is left of the prompt. */
  readonly kept: Uint32Array;
  /** What was taken back. */
  readonly removed: Uint32Array;
  /** Whether the text that was taken back has been spelled again. */
  readonly done: boolean;
  /** The bias of the next token: it spells what is left of that text, or more. */
  mask(): Float32Array;
  drew(token: number): void;
}

/**
 * Takes back the last tokens of a prompt: from the earliest one whose text, with all after it, some longer token begins
 * with. Undefined where there is none, and the prompt stays as it is.
 *
 * @param size - of the model's vocabulary.
 * @param excluded - ids that end a text.
 */
export async function healing(
  tokenizer: TextDecoding,
  prompt: Uint32Array,
  size: number,
  excluded: readonly number[],
): Promise<Healing | undefined> {
  if (isA(tokenizer, ByteTokenizer)) return undefined; // no byte begins with another
  const { spelled, byFirst, fallback } = await vocabularyOf(tokenizer);
  const usable = (id: number) => id < size && !excluded.includes(id);
  let from = prompt.length;
  let text = new Uint8Array();
  let taken = text;
  // A prompt needs one token.
  for (let at = prompt.length - 1; at > 0; at--) {
    const piece = spelled[prompt[at] as number];
    if (!piece) break;
    text = joined(piece, text);
    if (text.length === 0) continue;
    const extends_ = (id: number) => usable(id) && longer(spelled[id] as Uint8Array, text);
    if (byFirst[text[0] as number]?.some(extends_)) [from, taken] = [at, text];
    if (text.length > LONGEST) break;
  }
  if (from === prompt.length) return undefined;
  return {
    kept: prompt.slice(0, from),
    removed: prompt.slice(from),
    get done() {
      return taken.length === 0;
    },
    mask() {
      const mask = new Float32Array(size).fill(Number.NEGATIVE_INFINITY);
      const first = byFirst[taken[0] as number] ?? [];
      const fitting = first.filter((id) => usable(id) && agree(spelled[id] as Uint8Array, taken));
      // No text has them where the character has a token of its own.
      const usual = fitting.filter((id) => !fallback.has(id));
      for (const id of usual.length > 0 ? usual : fitting) mask[id] = 0;
      return mask;
    },
    drew(token) {
      taken = taken.subarray(spelled[token]?.length ?? taken.length);
    },
  };
}

/** Bytes beyond which no token is looked for. */
const LONGEST = 64;

const agree = (a: Uint8Array, b: Uint8Array) =>
  a.subarray(0, b.length).every((byte, at) => byte === b[at]);

const longer = (piece: Uint8Array, text: Uint8Array) =>
  piece.length > text.length && agree(text, piece);

function joined(a: Uint8Array, b: Uint8Array): Uint8Array<ArrayBuffer> {
  const all = new Uint8Array(a.length + b.length);
  all.set(a);
  all.set(b, a.length);
  return all;
}

/** The caller's biases, with those of the healing before them. */
export function healedBiases(own: Biases | undefined, by: Healing): Biases {
  return {
    fixed: own?.fixed,
    async next() {
      const bias = (await own?.next?.()) ?? undefined;
      if (by.done) return bias;
      const mask = by.mask();
      const more = bias?.length ? bias : own?.fixed;
      more?.forEach((value, id) => {
        mask[id] = (mask[id] as number) + value;
      });
      return mask;
    },
    drew(token) {
      if (!by.done) by.drew(token);
      own?.drew(token);
    },
  };
}

/** @internal */
export async function vocabularyOf(tokenizer: TextDecoding): Promise<Vocabulary> {
  const { BYTE_CHARACTERS } = await tokenizersPart();
  const made =
    known.get(tokenizer) ??
    inspect("generate: heal", () => readVocabulary(tokenizer, BYTE_CHARACTERS));
  known.set(tokenizer, made);
  return made;
}

/** Reads the tokenizer's own file: it says what each token spells, which a decoder does not tell of half a character. */
function readVocabulary(tokenizer: object, byteCharacters: readonly string[]): Vocabulary {
  const files = (tokenizer as { save?(): { readonly [name: string]: Uint8Array } }).save?.();
  const bytes = files?.["tokenizer.json"];
  const json = bytes && (JSON.parse(new TextDecoder().decode(bytes)) as Json | null);
  const spell = json?.model && spelling(json, byteCharacters);
  if (!json || !spell) {
    throw invalid(
      "generate: heal needs a tokenizer whose tokens spell the text, with tokenizer.json: byte-level BPE, or SentencePiece " +
        "with ▁ for spaces; leave heal out",
    );
  }
  const spelled: (Uint8Array | undefined)[] = [];
  const fallback = new Set<number>();
  for (const [token, id] of entries(json.model.vocab)) {
    spelled[id] = spell(token);
    if (/^<0x[0-7][0-9A-F]>$/.test(token)) fallback.add(id);
  }
  // The decoder spells these as it does others: Gemma's runs of spaces are added tokens of `▁`.
  for (const { id, content, special } of json.added_tokens ?? []) {
    spelled[id] = special ? undefined : spell(content);
  }
  const byFirst: number[][] = Array.from({ length: 256 }, () => []);
  for (const [id, piece] of spelled.entries()) {
    if (piece && piece.length > 0) byFirst[piece[0] as number]?.push(id);
  }
  return { spelled, byFirst, fallback };
}

/** Texts and ids of a vocabulary: an object, or of Unigram a list of texts and scores. */
function entries(vocab: unknown): Iterable<readonly [string, number]> {
  if (!Array.isArray(vocab)) return Object.entries(vocab as { [token: string]: number });
  return vocab.map(([token], id) => [token as string, id] as const);
}

/** What a token's text in the file spells; undefined of vocabularies that are spelled otherwise. */
function spelling(
  { decoder, model }: Json,
  byteCharacters: readonly string[],
): ((token: string) => Uint8Array) | undefined {
  const utf8 = new TextEncoder();
  const parts = JSON.stringify(decoder ?? null);
  if (parts.includes('"ByteLevel"')) {
    const bytes = new Map(byteCharacters.map((character, byte) => [character, byte]));
    return (token) => {
      const found = Array.from(token, (character) => bytes.get(character));
      return found.includes(undefined) ? utf8.encode(token) : Uint8Array.from(found as number[]);
    };
  }
  if (model.type === "WordPiece" || !parts.includes("▁")) return undefined;
  return (token) => {
    const byte = /^<0x([0-9A-F]{2})>$/.exec(token)?.[1];
    return byte
      ? Uint8Array.of(Number.parseInt(byte, 16))
      : utf8.encode(token.replaceAll("▁", " "));
  };
}
