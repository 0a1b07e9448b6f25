/** `Tokenizer.fromPretrained`. */

import { throwIfAborted } from "../error.js";
import { corrupt } from "../file-part.js";
import { check, type Rules, show } from "../options.js";
import { LOAD, openSource, type Source } from "../source.js";
import { readText } from "../source-files.js";
import type { PretrainedTokenizer } from "../tokenizer.js";
import { Bpe, BYTE_CHARACTERS } from "./bpe.js";
import { checkedJson } from "./checked.js";
import { load } from "./peers.js";
import {
  byteLevelBpe,
  HuggingFaceTokenizer,
  type PeerTokenizer,
  type Spelling,
  type TokenizerInfo,
} from "./trained.js";
import type { TokenizerFiles, TokenizerOptions } from "./types.js";

/** Bytes of a tokenizer's file at most: those of a quarter of a million tokens take about forty million. */
const MOST = 128 << 20;

/** What is read of tokenizer.json here. */
export interface TokenizerJson {
  readonly added_tokens?: readonly AddedToken[];
  readonly normalizer?: unknown;
  readonly pre_tokenizer?: TokenizerPart | null;
  readonly post_processor?: TokenizerPart | null;
  readonly decoder?: (TokenizerPart & { readonly decoders?: readonly TokenizerPart[] }) | null;
  readonly model: TokenizerPart & {
    readonly vocab: { readonly [token: string]: number };
    readonly merges: readonly (string | readonly [string, string])[];
  };
}

/** A part of tokenizer.json, such as its pre-tokenizer. */
export interface TokenizerPart {
  readonly type?: string;
  readonly [name: string]: unknown;
}

export interface AddedToken {
  readonly id: number;
  readonly content: string;
  readonly [flag: string]: unknown;
}

/** An entry of a vocabulary that is a list, as of Unigram. */
type Entry = readonly [text: string, score: number];

interface Peer {
  readonly Tokenizer: new (json: object, config: object) => PeerTokenizer;
}

const RULES: Rules<TokenizerOptions> = {
  ...LOAD,
  library: (value) =>
    ["string", "object"].includes(typeof value) && value
      ? undefined
      : "the module @huggingface/tokenizers, or its address",
};

export async function loadTokenizer(
  source: unknown,
  given: TokenizerOptions,
): Promise<PretrainedTokenizer> {
  const where = "Tokenizer.fromPretrained";
  const { library, ...options } = check(where, given, RULES);
  throwIfAborted(options.signal, where);
  const from = openSource(where, source, options);
  const { json, config, ...texts } = await readFiles(from);
  const info = infoOf(json, config, texts);
  const bpe = ownBpe(json);
  if (bpe) return byteLevelBpe(bpe, info);
  const spelling = spellingOf(json);
  const { Tokenizer } = await load<Peer>("tokenizers", library);
  let peer: PeerTokenizer;
  try {
    peer = new Tokenizer(json, config);
  } catch (cause) {
    throw corrupt(
      `@huggingface/tokenizers refuses ${from.place("tokenizer.json")}: ${show(cause)}`,
      cause,
    );
  }
  return new HuggingFaceTokenizer(peer, info, spelling);
}

/** A tokenizer's files, read and checked. */
async function readFiles(from: Source) {
  const text = await readText(from, "tokenizer.json", MOST);
  const json = checkedJson(from.place("tokenizer.json"), parsed(from, "tokenizer.json", text));
  const configText = await optional(from, "tokenizer_config.json");
  const template = await optional(from, "chat_template.jinja");
  const config = configText ? parsed(from, "tokenizer_config.json", configText) : {};
  return { json, config, text, configText, template };
}

/** The files of a loaded tokenizer, from which an export for other programs is written. */
export interface LoadedFiles {
  readonly json: TokenizerJson;
  /** The bytes of `tokenizer.model`, where it is there. */
  readonly scores: Uint8Array | undefined;
  readonly chatTemplate: string | undefined;
  /** The text of a special token, such as `eos`. */
  special(name: string): string | undefined;
  idOf(text: string): number | undefined;
}

/** Reads a tokenizer's files without making a tokenizer of them. */
export async function readTokenizer(where: string, source: unknown): Promise<LoadedFiles> {
  const from = openSource(where, source, {});
  const { json, config, ...texts } = await readFiles(from);
  return {
    json,
    scores: await optionalBytes(from, "tokenizer.model"),
    chatTemplate: infoOf(json, config, texts).chatTemplate,
    special: (name) => tokenText(config[`${name}_token`]),
    idOf: (text) => idOf(json, text),
  };
}

/** The text of a file that need not be there. */
async function optional(from: Source, name: string): Promise<string | undefined> {
  const bytes = await optionalBytes(from, name);
  return bytes && new TextDecoder().decode(bytes);
}

async function optionalBytes(from: Source, name: string): Promise<Uint8Array | undefined> {
  const file = await from.find(name, MOST);
  if (!file) return undefined;
  const bytes = Uint8Array.from(await file.read(0, file.size));
  file.rest?.();
  return bytes;
}

function parsed(from: Source, name: string, text: string): { readonly [name: string]: unknown } {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === "object" && value !== null) return value as { [name: string]: unknown };
  } catch (cause) {
    throw corrupt(`${from.place(name)} is not JSON: ${show(cause)}`, cause);
  }
  throw corrupt(`${from.place(name)} is no JSON object`);
}

interface Texts {
  readonly text: string;
  readonly configText: string | undefined;
  readonly template: string | undefined;
}

function infoOf(
  json: TokenizerJson,
  config: { readonly [name: string]: unknown },
  { text, configText, template }: Texts,
): TokenizerInfo {
  const bytes = (one: string) => new TextEncoder().encode(one);
  const files: TokenizerFiles = {
    "tokenizer.json": bytes(text),
    ...(configText !== undefined && { "tokenizer_config.json": bytes(configText) }),
    ...(template !== undefined && { "chat_template.jinja": bytes(template) }),
  };
  const own = config["chat_template"];
  const end = tokenText(config["eos_token"]);
  const endToken = end === undefined ? undefined : idOf(json, end);
  return { files, endToken, chatTemplate: template ?? (typeof own === "string" ? own : undefined) };
}

/** The id of a token by its text. */
function idOf({ added_tokens, model }: TokenizerJson, text: string): number | undefined {
  const added = added_tokens?.find(({ content }) => content === text);
  if (added) return added.id;
  const vocab: TokenizerJson["model"]["vocab"] | readonly Entry[] = model.vocab;
  if (!Array.isArray(vocab)) return (vocab as TokenizerJson["model"]["vocab"])[text];
  const at = (vocab as readonly Entry[]).findIndex(([token]) => token === text);
  return at < 0 ? undefined : at;
}

/** A special token as configs have it: its text, or an object with it. */
export function tokenText(value: unknown): string | undefined {
  const text = typeof value === "object" ? (value as { content?: unknown } | null)?.content : value;
  return typeof text === "string" ? text : undefined;
}

/** The tokenizer as this package's own, if it is byte-level BPE as GPT-2 has it and nothing else. */
function ownBpe(json: TokenizerJson): Bpe | undefined {
  const { pre_tokenizer: words, post_processor: after, decoder, model } = json;
  const plain =
    !json.normalizer &&
    words?.type === "ByteLevel" &&
    words["add_prefix_space"] === false &&
    words["use_regex"] !== false &&
    (!after || after.type === "ByteLevel") &&
    decoder?.type === "ByteLevel" &&
    model.type === "BPE" &&
    !model["dropout"] &&
    !model["continuing_subword_prefix"] &&
    !model["end_of_word_suffix"] &&
    !model["byte_fallback"] &&
    !model["ignore_merges"];
  const added = json.added_tokens ?? [];
  const simple = added.every(
    (one) =>
      !one["single_word"] && !one["lstrip"] && !one["rstrip"] && !one["normalized"] && one.content,
  );
  if (!plain || !simple) return undefined;
  const { vocab } = model;
  const bytes = BYTE_CHARACTERS.map((character) => vocab[character]);
  if (bytes.some((id) => id === undefined)) return undefined;
  const special = new Map(added.map(({ content, id }) => [content, id]));
  const ids = [...Object.values(vocab), ...special.values()];
  const vocabSize = ids.reduce((most, id) => Math.max(most, id), 0) + 1;
  if (vocabSize > 1 << 21) return undefined;
  const merges = new Uint32Array(model.merges.length * 3);
  for (const [rank, merge] of model.merges.entries()) {
    const [left, right] = typeof merge === "string" ? merge.split(" ") : merge;
    const triple = [vocab[left as string], vocab[right as string], vocab[`${left}${right}`]];
    if (triple.some((id) => id === undefined)) return undefined;
    merges.set(triple as number[], rank * 3);
  }
  // Of the tokens' own texts: a merge may stand before those that make its parts, and a token without one.
  const pieces: Uint8Array[] = [];
  for (const [token, id] of Object.entries(vocab)) pieces[id] = byteLevelBytes(token);
  return new Bpe({
    bytes: Uint32Array.from(bytes as number[]),
    pieces,
    merges,
    special,
    vocabSize,
  });
}

const BYTES = new Map(BYTE_CHARACTERS.map((character, byte) => [character, byte]));

/** What a token of byte-level BPE stands for; one with other characters stands for itself, as in Hugging Face's. */
function byteLevelBytes(token: string): Uint8Array {
  const bytes = Array.from(token, (character) => BYTES.get(character));
  return bytes.includes(undefined)
    ? new TextEncoder().encode(token)
    : Uint8Array.from(bytes as number[]);
}

/**
 * Which bytes each id stands for: of byte-level tokens by their characters, of those with byte fallback by
 * their text with spaces for `▁`, and `<0x0A>` for one byte. Undefined of tokens that are decoded otherwise,
 * as in WordPiece.
 */
function spellingOf(json: TokenizerJson): Spelling | undefined {
  const { decoder, model } = json;
  if (model.type !== "BPE" || !decoder) return undefined;
  const several = Array.isArray(decoder.decoders) ? decoder.decoders : [];
  const parts: readonly TokenizerPart[] = decoder.type === "Sequence" ? several : [decoder];
  const kinds = parts.map((part) => part?.type).join();
  const byteLevel = kinds === "ByteLevel";
  if (!byteLevel && !/^Replace,ByteFallback,Fuse(,Strip)?$/.test(kinds)) return undefined;
  const replaced = JSON.stringify([parts[0]?.["pattern"], parts[0]?.["content"]]);
  const [, , , cut] = parts;
  const strips =
    cut === undefined || (cut["content"] === " " && cut["start"] === 1 && cut["stop"] === 0);
  if (!byteLevel && (replaced !== '[{"String":"▁"}," "]' || !strips)) return undefined;
  return { bytes: bytesByToken(json, byteLevel), strip: cut !== undefined };
}

function bytesByToken(json: TokenizerJson, byteLevel: boolean): (id: number) => Uint8Array {
  const special = new Map((json.added_tokens ?? []).map(({ id, content }) => [id, content]));
  const tokens = new Map(Object.entries(json.model.vocab).map(([token, id]) => [id, token]));
  const utf8 = new TextEncoder();
  return (id) => {
    const text = special.get(id);
    if (text !== undefined) return utf8.encode(text);
    const token = tokens.get(id) ?? "";
    if (byteLevel) return byteLevelBytes(token);
    const byte = /^<0x([0-9A-F]{2})>$/.exec(token)?.[1];
    return byte
      ? Uint8Array.of(Number.parseInt(byte, 16))
      : utf8.encode(token.replaceAll("▁", " "));
  };
}
