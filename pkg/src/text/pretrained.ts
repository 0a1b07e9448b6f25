/** `Tokenizer.fromPretrained`. */

import { isTinyloomError, throwIfAborted } from "../error.js";
import { corrupt } from "../file-part.js";
import { openSource } from "../file-source.js";
import { check, type Rules, show } from "../options.js";
import { LOAD } from "../progress.js";
import type { PretrainedTokenizer } from "../tokenizer.js";
import type { SpecialTokens } from "../tokenizer-types.js";
import { aroundOf } from "./around.js";
import { Bpe, BYTE_CHARACTERS, byteLevelBytes } from "./bpe.js";
import { decodingOf } from "./decoders.js";
import { HuggingFaceTokenizer, type PeerTokenizer } from "./hugging-face.js";
import { normalizing } from "./normalizers.js";
import { load } from "./peers.js";
import { spellingOf } from "./spelling.js";
import { optionalBytes, type ReadFiles, readFiles } from "./tokenizer-files.js";
import { idOf, type TokenizerJson, textsOf } from "./tokenizer-json.js";
import { byteLevelBpe } from "./trained.js";
import type { TokenizerOptions } from "./types.js";
import { wordsOf } from "./words.js";

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
  const files = await readFiles(openSource(where, source, options));
  const bpe = ownBpe(files.json);
  return bpe ? byteLevelBpe(bpe, files.info) : ofHuggingFace(files, library);
}

/** A text with which a tokenizer is tried when it is loaded. */
const TRIED = "a 1.\né";

/** A tokenizer that the package computes, but for what it computes otherwise than Python. */
async function ofHuggingFace(
  { json, info, place }: ReadFiles,
  library: unknown,
): Promise<HuggingFaceTokenizer> {
  const { pre_tokenizer, prefix } = wordsOf(place, json);
  const own = {
    added: json.added_tokens,
    around: aroundOf(place, json),
    decoding: decodingOf(place, json),
    texts: textsOf(json),
    spelling: spellingOf(json),
    prefix,
  };
  const { model } = json;
  expectComputed(place, model);
  const { Tokenizer } = await load<Peer>(library);
  const none = { added_tokens: [], normalizer: null, post_processor: null, decoder: null };
  try {
    // The second argument is tokenizer_config.json, which Python's tokenizers do not read.
    const peer = new Tokenizer(
      { ...none, pre_tokenizer, model },
      { unk_token: model["unk_token"] },
    );
    peer.encode(TRIED, { add_special_tokens: false }); // some of what is wrong shows in a text alone
    const normalize = normalizing(place, json, (normalizer) => {
      const empty = { type: "BPE", vocab: {}, merges: [] };
      const { normalizer: made } = new Tokenizer(
        { ...none, normalizer, pre_tokenizer: null, model: empty },
        {},
      );
      return (text) => made?.normalize(text) ?? text;
    });
    normalize(TRIED);
    return new HuggingFaceTokenizer(peer, info, { ...own, normalize });
  } catch (cause) {
    if (isTinyloomError(cause)) throw cause;
    throw corrupt(`@huggingface/tokenizers refuses ${place}: ${show(cause)}`, cause);
  }
}

/** Refuses what the package takes no notice of, and Python does. */
function expectComputed(place: string, model: TokenizerJson["model"]): void {
  const name = { BPE: "continuing_subword_prefix", Unigram: "byte_fallback" }[String(model.type)];
  if (name === undefined || !model[name]) return;
  throw corrupt(
    `${place}: model.${name} of ${model.type} is ${show(model[name])}, which is not computed here`,
  );
}

/** The files of a loaded tokenizer, from which an export for other programs is written. */
export interface LoadedFiles {
  readonly json: TokenizerJson;
  /** The bytes of `tokenizer.model`, where it is there. */
  readonly scores: Uint8Array | undefined;
  readonly chatTemplate: string | undefined;
  readonly specialTokens: SpecialTokens;
  /** What `tokenizer_config.json` says of the tokens around a text, `add_bos_token` and `add_eos_token`. */
  readonly adds: { readonly bos?: boolean; readonly eos?: boolean };
  idOf(text: string): number | undefined;
}

/** Reads a tokenizer's files without making a tokenizer of them. */
export async function readTokenizer(where: string, source: unknown): Promise<LoadedFiles> {
  const from = openSource(where, source, {});
  const { json, info } = await readFiles(from);
  return {
    json,
    scores: await optionalBytes(from, "tokenizer.model"),
    chatTemplate: info.chatTemplate,
    specialTokens: info.specialTokens,
    adds: addsIn(info.files["tokenizer_config.json"]),
    idOf: (text) => idOf(json, text),
  };
}

function addsIn(file: Uint8Array | undefined): LoadedFiles["adds"] {
  const config = file ? JSON.parse(new TextDecoder().decode(file)) : {};
  const said = ["bos", "eos"].map((name) => [name, config[`add_${name}_token`]] as const);
  return Object.fromEntries(said.filter(([, value]) => typeof value === "boolean"));
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
  const added = json.added_tokens;
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
  const plainTexts = added.filter((one) => !one["special"]).map(({ content }) => content);
  return new Bpe({
    bytes: Uint32Array.from(bytes as number[]),
    pieces,
    merges,
    special,
    plain: new Set(plainTexts),
    vocabSize,
  });
}
