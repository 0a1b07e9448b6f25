/** Tokenizers of byte-level byte-pair encoding, and their files. */

import { TinyloomError } from "../error.js";
import { invalid, show } from "../options.js";
import { BpeTokenizer, newDecoder } from "../tokenizer.js";
import type {
  DecodeOptions,
  EncodeOptions,
  SpecialTokens,
  TokenDecoder,
} from "../tokenizer-types.js";
import { asTokens, type TokenIds } from "../tokens.js";
import { Bpe, BYTE_CHARACTERS, joined } from "./bpe.js";
import { AS_IT_STANDS, bpeModel, byteLevel } from "./byte-level.js";
import { decodesSpecial, parsesSpecial } from "./special.js";
import { spells } from "./spelling.js";
import type { TokenizerInfo } from "./tokenizer-info.js";
import type { TokenizerFiles } from "./types.js";

export { bytesOf } from "./spelling.js";

class ByteLevelBpe extends BpeTokenizer {
  readonly vocabSize: number;
  readonly endToken: number;
  readonly startTokens: readonly number[] = [];
  readonly specialTokens: SpecialTokens;
  readonly chatTemplate: string | undefined;
  readonly chatTemplates: { readonly [name: string]: string };
  readonly #bpe: Bpe;
  readonly #files: TokenizerFiles;

  constructor(bpe: Bpe, info: TokenizerInfo) {
    super();
    this.#bpe = bpe;
    this.#files = info.files;
    this.vocabSize = bpe.model.vocabSize;
    this.endToken = info.endToken as number;
    this.specialTokens = info.specialTokens;
    this.chatTemplate = info.chatTemplate;
    this.chatTemplates = info.chatTemplates;
    spells(this, (id) => bpe.bytesOf(id));
  }

  encode(text: string, options?: EncodeOptions): Uint32Array {
    if (typeof text !== "string") throw invalid(`encode takes a string, not ${show(text)}`);
    return this.#bpe.encode(text, parsesSpecial(options));
  }

  decode(tokens: TokenIds, options?: DecodeOptions): string {
    const special = decodesSpecial(options);
    return newDecoder().decode(
      joined(Array.from(asTokens("tokens", tokens), (id) => this.#bytes(id, special))),
    );
  }

  decoder(options?: DecodeOptions): TokenDecoder {
    const special = decodesSpecial(options);
    const decoder = newDecoder();
    return {
      push: (token) =>
        decoder.decode(this.#bytes(asTokens("token", [token])[0] as number, special), {
          stream: true,
        }),
      end: () => decoder.decode(),
    };
  }

  save(): TokenizerFiles {
    return copied(this.#files);
  }

  #bytes(id: number, special: boolean): Uint8Array<ArrayBuffer> {
    if (!special && this.#bpe.isSpecial(id)) return new Uint8Array();
    if (id < this.vocabSize) return this.#bpe.bytesOf(id) as Uint8Array<ArrayBuffer>;
    throw new TinyloomError(
      "invalid-tokens",
      `token ${id} is none of the tokenizer's; ids run from 0 to ${this.vocabSize - 1}`,
    );
  }
}

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
  const [end] = special as [string];
  return byteLevelBpe(bpe, {
    files,
    endToken: ids.get(end),
    specialTokens: { eos: { text: end, id: ids.get(end) } },
    chatTemplate,
    chatTemplates: chatTemplate === undefined ? {} : { default: chatTemplate },
  });
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
  const flags = { ...AS_IT_STANDS, special: true };
  return {
    version: "1.0",
    truncation: null,
    padding: null,
    added_tokens: Array.from(special, ([content, id]) => ({ id, content, ...flags })),
    normalizer: null,
    pre_tokenizer: byteLevel(true),
    post_processor: null,
    decoder: byteLevel(true),
    model: bpeModel(vocab, pairs),
  };
}
