/** Tokenizers of byte-level byte-pair encoding, and their files. */

import { TinyloomError } from "../error.js";
import { inspect, invalid, show } from "../options.js";
import {
  BpeTokenizer,
  type EncodeOptions,
  newDecoder,
  type PretrainedTokenizer,
  type TokenDecoder,
  Tokenizer,
} from "../tokenizer.js";
import { asTokens, type TokenIds } from "../tokens.js";
import { Bpe, BYTE_CHARACTERS, joined } from "./bpe.js";
import type { TokenizerFiles } from "./types.js";

/** What a tokenizer's files say besides how to encode. */
export interface TokenizerInfo {
  readonly files: TokenizerFiles;
  readonly endToken: number | undefined;
  readonly chatTemplate: string | undefined;
}

class ByteLevelBpe extends BpeTokenizer {
  readonly vocabSize: number;
  readonly endToken: number;
  readonly chatTemplate: string | undefined;
  readonly #bpe: Bpe;
  readonly #files: TokenizerFiles;

  constructor(bpe: Bpe, { files, endToken, chatTemplate }: TokenizerInfo) {
    super();
    this.#bpe = bpe;
    this.#files = files;
    this.vocabSize = bpe.model.vocabSize;
    this.endToken = endToken as number;
    this.chatTemplate = chatTemplate;
    pieces.set(this, (id) => bpe.bytesOf(id));
  }

  encode(text: string, _options?: EncodeOptions): Uint32Array {
    if (typeof text !== "string") throw invalid(`encode takes a string, not ${show(text)}`);
    return this.#bpe.encode(text);
  }

  decode(tokens: TokenIds): string {
    return newDecoder().decode(
      joined(Array.from(asTokens("tokens", tokens), (id) => this.#bytes(id))),
    );
  }

  decoder(): TokenDecoder {
    const decoder = newDecoder();
    return {
      push: (token) =>
        decoder.decode(this.#bytes(asTokens("token", [token])[0] as number), { stream: true }),
      end: () => decoder.decode(),
    };
  }

  save(): TokenizerFiles {
    return copied(this.#files);
  }

  #bytes(id: number): Uint8Array<ArrayBuffer> {
    if (id < this.vocabSize) return this.#bpe.bytesOf(id) as Uint8Array<ArrayBuffer>;
    throw new TinyloomError(
      "invalid-tokens",
      `token ${id} is none of the tokenizer's; ids run from 0 to ${this.vocabSize - 1}`,
    );
  }
}

/** How a text is spelled by the bytes of its ids. */
export interface Spelling {
  readonly bytes: (id: number) => Uint8Array;
  /** Whether the space before the first word is the tokenizer's, and no part of the text. */
  readonly strip: boolean;
}

/** The bytes that each id of a tokenizer stands for, where they are known. */
const pieces = new WeakMap<object, (id: number) => Uint8Array>();

/** The bytes that each of a tokenizer's ids stands for. */
export const bytesOf = (tokenizer: object) => pieces.get(tokenizer);

/** A copy that a caller may change. */
export function copied(files: TokenizerFiles): TokenizerFiles {
  const entries = Object.entries(files).map(([name, bytes]) => [name, bytes.slice()]);
  return Object.fromEntries(entries) as TokenizerFiles;
}

/**
 * The id of a special token: where the vocabulary has an entry of its text, that entry's, as in Hugging Face's
 * tokenizers. Many entries are spelled otherwise than what they stand for, as `Ġ` stands for a space: texts with
 * either would lose characters.
 */
function specialId(where: string, text: string, vocab: Vocabulary, next: number): number {
  const id = vocab[text];
  if (id === undefined) return next;
  if (/^[!-~]+$/.test(text)) return id;
  throw invalid(
    `${where}: the special token ${show(text)} is how the vocabulary spells another text; give another, ` +
      `such as "<|${text}|>"`,
  );
}

/** Whether a special token is one of the 256 bytes. */
export const isByte = (where: string, text: string) => specialId(where, text, BYTE_IDS, 256) < 256;

interface Vocabulary {
  readonly [token: string]: number;
}

const BYTE_IDS: Vocabulary = {
  __proto__: null as never,
  ...Object.fromEntries(BYTE_CHARACTERS.map((character, byte) => [character, byte])),
};

/**
 * Makes a tokenizer of merges as they were learned. Bytes have the ids 0 to 255, special tokens that are no entry of
 * the vocabulary the last ones.
 */
export function trainedBpe(
  where: string,
  pairs: Uint32Array,
  special: readonly string[],
  chatTemplate: string | undefined,
): BpeTokenizer {
  const count = pairs.length / 2;
  const merges = new Uint32Array(count * 3);
  const pieces = Array.from({ length: 256 }, (_, byte) => Uint8Array.of(byte));
  for (let rank = 0; rank < count; rank++) {
    const [left, right] = pairs.subarray(rank * 2) as unknown as [number, number];
    merges.set([left, right, 256 + rank], rank * 3);
    pieces.push(joined([pieces[left] as Uint8Array, pieces[right] as Uint8Array]));
  }
  const vocab: { [token: string]: number } = { __proto__: null as never };
  for (const [id, piece] of pieces.entries()) vocab[characters(piece)] = id;
  const ids = new Map<string, number>();
  let vocabSize = pieces.length;
  for (const text of special) {
    const id = specialId(where, text, vocab, vocabSize);
    ids.set(text, id);
    vocabSize = Math.max(vocabSize, id + 1);
  }
  const bpe = new Bpe({
    bytes: Uint32Array.from({ length: 256 }, (_, byte) => byte),
    pieces,
    merges,
    special: ids,
    vocabSize,
  });
  const text = (value: unknown) => new TextEncoder().encode(`${JSON.stringify(value, null, 2)}\n`);
  const files = {
    "tokenizer.json": text(tokenizerJson(bpe, vocab)),
    "tokenizer_config.json": text({
      tokenizer_class: "PreTrainedTokenizerFast",
      eos_token: special[0],
      clean_up_tokenization_spaces: false,
      ...(chatTemplate !== undefined && { chat_template: chatTemplate }),
    }),
  };
  return byteLevelBpe(bpe, { files, endToken: ids.get(special[0] as string), chatTemplate });
}

/** A tokenizer with these files. */
export function byteLevelBpe(bpe: Bpe, info: TokenizerInfo): BpeTokenizer {
  return new ByteLevelBpe(bpe, info);
}

/** How the files spell bytes. */
const characters = (bytes: Uint8Array) =>
  Array.from(bytes, (byte) => BYTE_CHARACTERS[byte]).join("");

function tokenizerJson(bpe: Bpe, vocab: Vocabulary): object {
  const { merges, special } = bpe.model;
  const spelled = (id: number | undefined) => characters(bpe.bytesOf(id as number));
  const pairs: [string, string][] = [];
  for (let at = 0; at < merges.length; at += 3) {
    pairs.push([spelled(merges[at]), spelled(merges[at + 1])]);
  }
  const byteLevel = {
    type: "ByteLevel",
    add_prefix_space: false,
    trim_offsets: true,
    use_regex: true,
  };
  const flags = {
    single_word: false,
    lstrip: false,
    rstrip: false,
    normalized: false,
    special: true,
  };
  return {
    version: "1.0",
    truncation: null,
    padding: null,
    added_tokens: Array.from(special, ([content, id]) => ({ id, content, ...flags })),
    normalizer: null,
    pre_tokenizer: byteLevel,
    post_processor: null,
    decoder: byteLevel,
    model: {
      type: "BPE",
      dropout: null,
      unk_token: null,
      continuing_subword_prefix: null,
      end_of_word_suffix: null,
      fuse_unk: false,
      byte_fallback: false,
      ignore_merges: false,
      vocab,
      merges: pairs,
    },
  };
}

/** What `@huggingface/tokenizers` offers, as far as it is used. */
export interface PeerTokenizer {
  encode(
    text: string,
    options: { add_special_tokens: boolean },
  ): { readonly ids: readonly number[] };
  decode(
    ids: number[],
    options: { skip_special_tokens: boolean; clean_up_tokenization_spaces: boolean },
  ): string;
  get_vocab(withAdded: boolean): ReadonlyMap<string, number>;
}

const PLAIN = { skip_special_tokens: false, clean_up_tokenization_spaces: false };

/** A tokenizer that `@huggingface/tokenizers` computes. */
export class HuggingFaceTokenizer extends Tokenizer implements PretrainedTokenizer {
  readonly vocabSize: number;
  readonly endToken: number | undefined;
  readonly chatTemplate: string | undefined;
  readonly #peer: PeerTokenizer;
  readonly #files: TokenizerFiles;
  readonly #spelling: Spelling | undefined;

  /** @param spelling - where the ids spell the text, so that they are joined and not decoded by the peer. */
  constructor(
    peer: PeerTokenizer,
    { files, endToken, chatTemplate }: TokenizerInfo,
    spelling: Spelling | undefined,
  ) {
    super();
    this.#peer = peer;
    this.#spelling = spelling;
    if (spelling) pieces.set(this, spelling.bytes);
    this.#files = files;
    let most = -1;
    for (const id of peer.get_vocab(true).values()) if (id > most) most = id;
    this.vocabSize = most + 1;
    this.endToken = endToken;
    this.chatTemplate = chatTemplate;
  }

  encode(text: string, options: EncodeOptions = {}): Uint32Array {
    if (typeof text !== "string") throw invalid(`encode takes a string, not ${show(text)}`);
    return inspect("encode", () => {
      const { addSpecialTokens: add_special_tokens = true } = options ?? {};
      return Uint32Array.from(this.#peer.encode(text, { add_special_tokens }).ids);
    });
  }

  decode(tokens: TokenIds): string {
    const ids = Array.from(asTokens("tokens", tokens));
    if (!this.#spelling) return this.#peer.decode(ids, PLAIN);
    const decoder = this.decoder();
    return ids.map((id) => decoder.push(id)).join("") + decoder.end();
  }

  /**
   * Where ids do not spell the text, its end is decoded twice, with the new id and without: some tokenizers
   * have a space before a word only where another is before it. Half a character waits.
   */
  decoder(): TokenDecoder {
    return this.#spelling ? spelledDecoder(this.#spelling) : this.#peerDecoder();
  }

  #peerDecoder(): TokenDecoder {
    let ids: number[] = [];
    let before = "";
    const push = (token: number) => {
      ids.push(...asTokens("token", [token]));
      const text = this.#peer.decode(ids, PLAIN);
      if (text.length <= before.length || text.endsWith("\ufffd")) return "";
      const more = text.slice(before.length);
      ids = ids.slice(-CONTEXT);
      before = this.#peer.decode(ids, PLAIN);
      return more;
    };
    const end = () => {
      const rest = ids.length > 0 ? this.#peer.decode(ids, PLAIN).slice(before.length) : "";
      [ids, before] = [[], ""];
      return rest;
    };
    return { push, end };
  }

  save(): TokenizerFiles {
    return copied(this.#files);
  }
}

/** Ids before a new one that are decoded with it. */
const CONTEXT = 6;

function spelledDecoder({ bytes, strip }: Spelling): TokenDecoder {
  const decoder = newDecoder();
  let first = strip;
  return {
    push(token) {
      const piece = bytes(asTokens("token", [token])[0] as number);
      const own = first && piece[0] === 0x20 ? piece.subarray(1) : piece;
      first = false;
      return decoder.decode(own as Uint8Array<ArrayBuffer>, { stream: true });
    },
    end: () => decoder.decode(),
  };
}
