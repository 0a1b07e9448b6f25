/** A tokenizer's tokens and merges as llama.cpp reads them. */

import { tokenizersPart } from "../lazy.js";
import type { ModelConfig } from "../model-config.js";
import { invalid, isA, show } from "../options.js";
import type { LoadedFiles } from "../text/pretrained.js";
import type { AddedToken, TokenizerJson, TokenizerPart } from "../text/tokenizer-json.js";
import { LLAMA_3_WORDS, QWEN_2_WORDS } from "../text/word-patterns.js";
import { ByteTokenizer } from "../tokenizer.js";
import type { Metadata } from "./format.js";
import { type Pieces, piecesOfMerges } from "./merge-scores.js";
import { type Piece, piecesOf } from "./sentencepiece.js";

/** Kinds of tokens in llama.cpp, and in SentencePiece. */
export const NORMAL = 1;
const CONTROL = 3;
const USER_DEFINED = 4;
const UNUSED = 5;

/** Writes what is known of a tokenizer; gives the tokens, if there are some. */
export type WriteVocabulary = (metadata: Metadata) => readonly string[] | undefined;

/**
 * Splits of a text into words that llama.cpp knows by a name, each by what `tokenizer.json` says of it: the types of its
 * pre-tokenizers, expressions, and for `ByteLevel` whether it splits itself.
 */
const SPLITS: { readonly [parts: string]: string } = {
  "ByteLevel true": "gpt-2",
  "Digits,ByteLevel true": "smollm",
  [`Split ${LLAMA_3_WORDS},ByteLevel false`]: "llama-bpe",
  [`Split ${QWEN_2_WORDS},ByteLevel false`]: "qwen2",
};

/** What a tokenizer is to be in the file; refuses one whose ids llama.cpp would not give. */
export async function vocabularyOf(
  tokenizer: unknown,
  config: ModelConfig,
): Promise<WriteVocabulary> {
  if (tokenizer === null) {
    return (metadata) => {
      metadata.string("tokenizer.ggml.model", "none");
      return undefined;
    };
  }
  const { BYTE_CHARACTERS, readTokenizer } = await tokenizersPart();
  if (isA(tokenizer, ByteTokenizer)) return ofBytes(BYTE_CHARACTERS, config);
  const save = (tokenizer as { save?: unknown } | undefined)?.save;
  const source = typeof save === "function" ? save.call(tokenizer) : tokenizer;
  const encodes = typeof (tokenizer as { encode?: unknown } | undefined)?.encode === "function";
  if (encodes && !Object(source)["tokenizer.json"]) {
    throw invalid(
      "save: this tokenizer has no files, and a GGUF file needs its tokenizer.json; give null for a file without a " +
        "tokenizer, or a tokenizer of BpeTokenizer.train or Tokenizer.fromPretrained",
    );
  }
  if (typeof source !== "object" && typeof source !== "string") {
    throw invalid(
      `save: tokenizer is ${show(source)}; a GGUF file has the tokenizer in it: give the model's, its files by name, ` +
        "or null for none",
    );
  }
  const files = await readTokenizer("save: tokenizer", source);
  const { model } = files.json;
  if (model.type !== "BPE") {
    throw refused(`model.type is ${show(model.type)}, and only BPE is written`);
  }
  return model["byte_fallback"] === true ? withScores(files, config) : byteLevel(files, config);
}

/**
 * One token per byte: byte-level pairs without a merge. llama.cpp takes token 11 for the end where none is named,
 * and 11 is a byte of texts. Byte 255 is none of UTF-8.
 */
function ofBytes(characters: readonly string[], config: ModelConfig): WriteVocabulary {
  const list = padded(
    characters,
    characters.map(() => NORMAL),
    config,
  );
  return (metadata) => {
    writeBpe(metadata, "gpt-2", list, []);
    for (const name of ["bos", "eos"]) metadata.u32(`tokenizer.ggml.${name}_token_id`, 255);
    for (const name of ["bos", "eos"]) metadata.flag(`tokenizer.ggml.add_${name}_token`, false);
    return list.texts;
  };
}

interface Tokens {
  readonly texts: readonly string[];
  readonly types: readonly number[];
}

/** The tokens, and for each further id of the model one that no text has. */
function padded(texts: readonly string[], types: readonly number[], config: ModelConfig): Tokens {
  const size = config.vocab_size as number;
  if (texts.length > size) {
    throw invalid(
      `save: the tokenizer has ${texts.length} ids, and the model's vocab_size is ${size}; give the tokenizer ` +
        "that the model was trained with",
    );
  }
  const ids = Array.from({ length: size }, (_, id) => id);
  return {
    texts: ids.map((id) => texts[id] ?? `[PAD${id}]`),
    types: ids.map((id) => (texts[id] === undefined ? UNUSED : (types[id] ?? NORMAL))),
  };
}

function writeBpe(metadata: Metadata, split: string, tokens: Tokens, merges: readonly string[]) {
  metadata.string("tokenizer.ggml.model", "gpt2");
  metadata.string("tokenizer.ggml.pre", split);
  metadata.strings("tokenizer.ggml.tokens", tokens.texts);
  metadata.i32s("tokenizer.ggml.token_type", tokens.types);
  metadata.strings("tokenizer.ggml.merges", merges);
}

function byteLevel(files: LoadedFiles, config: ModelConfig): WriteVocabulary {
  const { json } = files;
  const { model, normalizer } = json;
  const form = (normalizer as TokenizerPart | null | undefined)?.type;
  // llama.cpp leaves texts as they are; so does NFC all but decomposed ones.
  if (form !== undefined && form !== "NFC") throw refused(`normalizer is ${show(form)}`);
  for (const name of ["dropout", "continuing_subword_prefix", "end_of_word_suffix"]) {
    if (model[name]) throw refused(`model.${name} is ${show(model[name])}`);
  }
  const words = splitOf(json.pre_tokenizer);
  const ignores = Boolean(model["ignore_merges"]);
  // The converter has another name for Llama 3's words where merges decide alone, as in SmolLM3.
  const split = words === "llama-bpe" && !ignores ? "smaug-bpe" : words;
  if (ignores !== (split === "llama-bpe")) {
    throw refused(
      `model.ignore_merges is ${show(model["ignore_merges"])} with the words of ${split}`,
    );
  }
  const texts: string[] = [];
  for (const [token, id] of Object.entries(model.vocab)) texts[id] = token;
  const types: number[] = [];
  for (const added of addedWithin(json, config)) {
    texts[added.id] = added.content;
    types[added.id] = typeOf(added);
  }
  const tokens = padded(texts, types, config);
  const merges = model.merges.map((merge) => (typeof merge === "string" ? merge : merge.join(" ")));
  const special = specialTokens(files, config);
  return (metadata) => {
    writeBpe(metadata, split, tokens, merges);
    special(metadata);
    return tokens.texts;
  };
}

function splitOf(words: TokenizerPart | null | undefined): string {
  const several = words?.type === "Sequence" ? words["pretokenizers"] : [words];
  const parts = (Array.isArray(several) ? several : []) as (TokenizerPart | null)[];
  const found = SPLITS[parts.map(described).join()];
  if (found) return found;
  throw refused(
    `pre_tokenizer is ${show(JSON.stringify(words))}, and llama.cpp's name of it is not known here`,
  );
}

/** A pre-tokenizer as {@link SPLITS} has it. */
function described(part: TokenizerPart | null): string {
  const { type = "none" } = part ?? {};
  if (type === "ByteLevel" && part?.["add_prefix_space"] === false) {
    return `${type} ${part["use_regex"] !== false}`;
  }
  if (type === "Digits" && part?.["individual_digits"] === true) return type;
  const isolated = type === "Split" && part?.["behavior"] === "Isolated" && !part["invert"];
  const { Regex } = Object(part?.["pattern"]) as { Regex?: unknown };
  return isolated ? `${type} ${Regex}` : `other ${type}`;
}

/** The kind of an added token: some that end a turn are not marked as special. */
function typeOf({ content, special }: AddedToken): number {
  return special || /^<\|.*\|>$/.test(content) ? CONTROL : USER_DEFINED;
}

/** Byte-pair encoding with byte fallback: llama.cpp merges by scores, which `tokenizer.model` has, or the merges say. */
function withScores(files: LoadedFiles, config: ModelConfig): WriteVocabulary {
  const { json, scores: file } = files;
  const all = piecesWithAdded(
    file ? piecesOfFile(json, file) : piecesOfRanks(json),
    addedWithin(json, config),
  );
  const tokens = padded(
    all.map((piece) => piece?.text as string),
    all.map((piece) => piece?.type as number),
    config,
  );
  const special = specialTokens(files, config);
  const prefix = putsSpace(json.normalizer, json.pre_tokenizer);
  return (metadata) => {
    metadata.string("tokenizer.ggml.model", "llama");
    metadata.string("tokenizer.ggml.pre", "default");
    metadata.strings("tokenizer.ggml.tokens", tokens.texts);
    metadata.f32s(
      "tokenizer.ggml.scores",
      tokens.texts.map((_, id) => all[id]?.score ?? -1000),
    );
    metadata.i32s("tokenizer.ggml.token_type", tokens.types);
    special(metadata);
    metadata.flag("tokenizer.ggml.add_space_prefix", prefix);
    return tokens.texts;
  };
}

function piecesOfFile(json: TokenizerJson, file: Uint8Array): Pieces {
  const { pieces } = piecesOf(file);
  const ids = new Map(Object.entries(json.model.vocab).map(([token, id]) => [id, token]));
  for (const [id, { text }] of pieces.entries()) {
    const own = ids.get(id);
    if (own !== undefined && own !== text) {
      throw refused(
        `token ${id} is ${show(own)}, and ${show(text)} in tokenizer.model: the files are of two tokenizers`,
      );
    }
  }
  return pieces;
}

function piecesOfRanks(json: TokenizerJson): Pieces {
  const words = JSON.stringify([json.normalizer, json.pre_tokenizer]);
  const spaced =
    words.includes("\u2581") && !/"(?:ByteLevel|Regex|Digits|Punctuation)"/.test(words);
  const pieces = spaced
    ? piecesOfMerges(json)
    : "model.byte_fallback is true, and texts are not split as by SentencePiece";
  if (typeof pieces !== "string") return pieces;
  throw refused(
    `${pieces}; give the files with the scores of tokenizer.model, ` +
      '{ ...tokenizer.save(), "tokenizer.model": bytes }',
  );
}

/**
 * The added tokens that the model has. Some tokenizers have more than its embedding has rows, for images; llama.cpp's
 * converter leaves them out.
 */
function addedWithin({ added_tokens, model }: TokenizerJson, config: ModelConfig) {
  const size = config.vocab_size as number;
  return added_tokens.filter(({ id, content }) => id < size || model.vocab[content] !== undefined);
}

/** SentencePiece's pieces and the added tokens by id; undefined for an id that neither has. */
function piecesWithAdded(pieces: Pieces, added: readonly AddedToken[]): (Piece | undefined)[] {
  const list: (Piece | undefined)[] = [...pieces];
  for (const one of added) {
    const own = pieces[one.id];
    const type = typeOf(one);
    // Those that SentencePiece has keep their kind, such as that of the unknown token, unless they are special.
    const kept = own?.type === USER_DEFINED ? type === USER_DEFINED : own?.type !== NORMAL;
    if (own?.text === one.content && kept) continue;
    list[one.id] = { text: one.content, score: -1000, type };
  }
  // llama.cpp finds these in the text as it is given, where spaces are not yet underscores.
  for (const [id, piece] of list.entries()) {
    if (piece?.type !== USER_DEFINED) continue;
    list[id] = { ...piece, text: piece.text.replaceAll("\u2581", " ") };
  }
  return Array.from(list, (piece) => piece); // without holes
}

/** Whether a text begins with a space of the tokenizer's. */
function putsSpace(normalizer: unknown, words: TokenizerPart | null | undefined): boolean {
  const text = JSON.stringify([normalizer, words]);
  return text.includes('"type":"Prepend"') || /"prepend_scheme":"(first|always)"/.test(text);
}

/** Names of special tokens in configs, and llama.cpp's. */
const SPECIAL = {
  bos: "bos",
  eos: "eos",
  unk: "unknown",
  pad: "padding",
} as const;

/** The special tokens, which of them a text gets, and the template of conversations. */
function specialTokens(files: LoadedFiles, config: ModelConfig): (metadata: Metadata) => void {
  const ids = new Map<string, number>();
  for (const name of Object.keys(SPECIAL)) {
    const text = files.specialTokens[name as "bos"]?.text;
    const own = config[`${name}_token_id`];
    const id = text === undefined ? own : files.idOf(text);
    const within = Number.isInteger(id) && (id as number) < (config.vocab_size as number);
    if (within) ids.set(name, id as number);
  }
  const { before, after } = around(files.json.post_processor);
  for (const [name, put] of [
    ["bos", before],
    ["eos", after],
  ] as const) {
    if (put !== undefined) ids.set(name, files.idOf(put) as number);
  }
  if (!ids.has("eos")) {
    throw refused(
      "no token ends a text, and llama.cpp would take one of its own for that; name eos_token in tokenizer_config.json",
    );
  }
  // Nor would it leave out the first token.
  if (!ids.has("bos")) ids.set("bos", ids.get("eos") as number);
  return (metadata) => {
    for (const [name, key] of Object.entries(SPECIAL)) {
      const id = ids.get(name);
      if (id !== undefined) metadata.u32(`tokenizer.ggml.${key}_token_id`, id);
    }
    // As llama.cpp's converter: tokenizer_config.json may say it otherwise.
    const { bos = before !== undefined, eos = after !== undefined } = files.adds;
    metadata.flag("tokenizer.ggml.add_bos_token", bos);
    metadata.flag("tokenizer.ggml.add_eos_token", eos);
    if (files.chatTemplate !== undefined) {
      metadata.string("tokenizer.chat_template", files.chatTemplate);
    }
  };
}

type Template = readonly { readonly SpecialToken?: { readonly id: string } }[];

/** The tokens that a text gets before and after it. */
function around(processor: TokenizerPart | null | undefined): { before?: string; after?: string } {
  const several = processor?.type === "Sequence" ? processor["processors"] : [processor];
  const parts = (Array.isArray(several) ? several : []) as (TokenizerPart | null | undefined)[];
  const others = parts.filter((part) => part && part.type !== "ByteLevel");
  if (others.length === 0) return {};
  const single = others[0]?.["single"];
  if (others.length > 1 || others[0]?.type !== "TemplateProcessing" || !Array.isArray(single)) {
    throw refused(`post_processor is ${show(JSON.stringify(processor))}`);
  }
  const put = (single as Template).map(({ SpecialToken }) => SpecialToken?.id);
  const at = put.indexOf(undefined);
  if (at < 0 || at > 1 || put.length > at + 2) {
    throw refused(
      `post_processor puts several tokens around a text: ${show(JSON.stringify(single))}`,
    );
  }
  const [before, after] = [at === 1 ? put[0] : undefined, put[at + 1]];
  return { ...(before !== undefined && { before }), ...(after !== undefined && { after }) };
}

/** What of tokenizer.json llama.cpp does not compute. */
function refused(what: string) {
  return invalid(
    `save: this tokenizer would give other ids in llama.cpp. In tokenizer.json ${what}; or give tokenizer: null`,
  );
}
