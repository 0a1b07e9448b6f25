/** What `tokenizer.json` and `tokenizer_config.json` would be, of the metadata of a GGUF file. */

import { show } from "../options.js";
import { AS_IT_STANDS, bpeModel, byteLevel, splitInto } from "../text/byte-level.js";
import type { AddedToken, TokenizerPart } from "../text/tokenizer-json.js";
import { LLAMA_3_WORDS, QWEN_2_WORDS } from "../text/word-patterns.js";
import { type Keys, refused } from "./metadata.js";
import { mergesOfScores, spacePieces } from "./score-merges.js";

/** Kinds of tokens in llama.cpp. */
const [NORMAL, UNKNOWN, USER_DEFINED, UNUSED] = [1, 2, 4, 5];

/** The tokenizer's files by name; none for a file without a tokenizer. */
export function tokenizerOf(keys: Keys): { readonly [name: string]: string } {
  const model = keys.text("tokenizer.ggml.model");
  if (model === undefined || model === "none" || model === "no_vocab") return {};
  const known = Object.hasOwn(MODELS, model) ? MODELS[model] : undefined;
  if (!known) {
    throw refused(
      `${keys.place}: tokenizer.ggml.model is ${show(model)}; ${Object.keys(MODELS).join(" and ")} are read. ` +
        "Load the tokenizer from the model's tokenizer.json",
    );
  }
  const tokens = tokensOf(keys, model === "llama");
  const { parts, startsByDefault } = known(keys, tokens);
  const named = specialOf(keys, tokens);
  const before = keys.flag("tokenizer.ggml.add_bos_token") ?? startsByDefault;
  const after = keys.flag("tokenizer.ggml.add_eos_token") ?? false;
  const json = {
    version: "1.0",
    truncation: null,
    padding: null,
    added_tokens: tokens.added,
    ...parts,
    post_processor: around(
      keys,
      before ? named["bos"] : undefined,
      after ? named["eos"] : undefined,
    ),
  };
  const config: { [name: string]: unknown } = { add_bos_token: before, add_eos_token: after };
  for (const [name, token] of Object.entries(named)) config[`${name}_token`] = token.content;
  const template = templateOf(keys);
  if (template !== undefined) config["chat_template"] = template;
  return {
    "tokenizer.json": JSON.stringify(json),
    "tokenizer_config.json": JSON.stringify(config),
  };
}

/** The tokens of a file by their kinds. */
interface Tokens {
  readonly texts: readonly string[];
  readonly types: ArrayLike<number>;
  /** Those that are found in a text before it is split. */
  readonly added: readonly AddedToken[];
}

/** @param spaced - whether pieces have spaces as U+2581. */
function tokensOf(keys: Keys, spaced: boolean): Tokens {
  const key = "tokenizer.ggml.tokens";
  const texts = keys.texts(key) ?? [];
  const types = keys.numbers("tokenizer.ggml.token_type") ?? texts.map(() => NORMAL);
  if (texts.length === 0 || types.length !== texts.length) {
    throw refused(
      `${keys.place}: ${key} has ${texts.length} tokens, and tokenizer.ggml.token_type ${types.length}`,
    );
  }
  const added: AddedToken[] = [];
  for (const [id, text] of texts.entries()) {
    const type = types[id] as number;
    if (type < UNKNOWN || type > USER_DEFINED || !text) continue;
    const content = spaced && type === USER_DEFINED ? spacePieces(text) : text;
    added.push({ id, content, ...AS_IT_STANDS, special: type !== USER_DEFINED });
  }
  return { texts, types, added };
}

interface Described {
  readonly parts: {
    readonly normalizer: TokenizerPart | null;
    readonly pre_tokenizer: TokenizerPart | null;
    readonly decoder: TokenizerPart;
    readonly model: TokenizerPart;
  };
  /** Whether a text begins with the first token, where the file does not say. */
  readonly startsByDefault: boolean;
}

const MODELS: { readonly [name: string]: (keys: Keys, tokens: Tokens) => Described } = {
  gpt2: byteLevelOf,
  llama: sentencePiece,
};

/** The words of byte-level models by llama.cpp's names. */
interface Words {
  readonly pre_tokenizer: TokenizerPart;
  readonly normalizer?: TokenizerPart;
  /** A word that is a token is that token, whatever the merges make. */
  readonly ignoreMerges?: boolean;
  readonly startsByDefault?: boolean;
}

const GPT_2: Words = { pre_tokenizer: byteLevel(true) };
const DIGITS: Words = {
  pre_tokenizer: {
    type: "Sequence",
    pretokenizers: [{ type: "Digits", individual_digits: true }, byteLevel(true)],
  },
};
const SMAUG: Words = { pre_tokenizer: splitInto(LLAMA_3_WORDS, byteLevel(false)) };
const LLAMA_3: Words = {
  ...SMAUG,
  ignoreMerges: true,
  startsByDefault: true,
};
/** llama.cpp composes no characters, and the tokenizers of these models do. */
const QWEN_2: Words = {
  pre_tokenizer: splitInto(QWEN_2_WORDS, byteLevel(false)),
  normalizer: { type: "NFC" },
};

const WORDS: { readonly [name: string]: Words } = {
  "gpt-2": GPT_2,
  olmo: GPT_2,
  smollm: DIGITS,
  starcoder: DIGITS,
  "llama-bpe": LLAMA_3,
  llama3: LLAMA_3,
  "llama-v3": LLAMA_3,
  "smaug-bpe": SMAUG,
  qwen2: QWEN_2,
  "deepseek-r1-qwen": QWEN_2,
};

function byteLevelOf(keys: Keys, { texts, types, added }: Tokens): Described {
  const name = keys.text("tokenizer.ggml.pre");
  const words = name !== undefined && Object.hasOwn(WORDS, name) ? WORDS[name] : undefined;
  if (!words) {
    throw refused(
      `${keys.place}: tokenizer.ggml.pre is ${show(name)}, and how it splits texts is not known here; ` +
        `${Object.keys(WORDS).join(", ")} are. Load the tokenizer from the model's tokenizer.json`,
    );
  }
  const merges = keys.texts("tokenizer.ggml.merges");
  if (!merges) throw refused(`${keys.place} lacks the metadata tokenizer.ggml.merges`);
  const apart = new Set(added.map(({ id }) => id));
  const vocab: { [text: string]: number } = {};
  for (const [id, text] of texts.entries()) {
    if (types[id] !== UNUSED && !apart.has(id)) vocab[text] = id;
  }
  return {
    parts: {
      normalizer: words.normalizer ?? null,
      pre_tokenizer: words.pre_tokenizer,
      decoder: byteLevel(true),
      model: { ...bpeModel(vocab, merges), ignore_merges: words.ignoreMerges ?? false },
    },
    startsByDefault: words.startsByDefault ?? false,
  };
}

/** Pieces with scores: as transformers makes of SentencePiece's files what merges them. */
function sentencePiece(keys: Keys, { texts, types }: Tokens): Described {
  const scores = keys.numbers("tokenizer.ggml.scores");
  if (scores?.length !== texts.length) {
    throw refused(
      `${keys.place} has ${texts.length} tokens, and tokenizer.ggml.scores ${scores?.length ?? 0}`,
    );
  }
  for (const key of ["precompiled_charsmap", "remove_extra_whitespaces"]) {
    keys.expectAllTaken(`tokenizer.ggml.${key}`);
  }
  const vocab: { [text: string]: number } = {};
  for (const [id, text] of texts.entries()) {
    if (types[id] !== UNUSED) vocab[types[id] === USER_DEFINED ? spacePieces(text) : text] = id;
  }
  const parts = texts.map((text, id) => ({
    text: spacePieces(text),
    score: scores[id] as number,
    // Runs of spaces are pieces of the user's, and merged before all others.
    first: types[id] === USER_DEFINED,
    merged:
      types[id] === NORMAL || (types[id] === USER_DEFINED && /^\u2581+$/.test(spacePieces(text))),
  }));
  const prefix = keys.flag("tokenizer.ggml.add_space_prefix") ?? true;
  const replaced = { type: "Replace", pattern: { String: " " }, content: "\u2581" };
  const unknown =
    keys.number("tokenizer.ggml.unknown_token_id") ?? Array.from(types).indexOf(UNKNOWN);
  return {
    parts: {
      normalizer: prefix
        ? { type: "Sequence", normalizers: [{ type: "Prepend", prepend: "\u2581" }, replaced] }
        : replaced,
      pre_tokenizer: null,
      decoder: {
        type: "Sequence",
        decoders: [
          { type: "Replace", pattern: { String: "\u2581" }, content: " " },
          { type: "ByteFallback" },
          { type: "Fuse" },
          ...(prefix ? [{ type: "Strip", content: " ", start: 1, stop: 0 }] : []),
        ],
      },
      model: {
        ...bpeModel(vocab, mergesOfScores(parts)),
        unk_token: texts[unknown] ?? null,
        fuse_unk: true,
        byte_fallback: true,
      },
    },
    startsByDefault: true,
  };
}

interface Special {
  readonly id: number;
  readonly content: string;
}

/** Names of special tokens in configs, and llama.cpp's. */
const NAMES = { bos: "bos", eos: "eos", unk: "unknown", pad: "padding" } as const;

function specialOf(keys: Keys, { texts }: Tokens): { readonly [name: string]: Special } {
  const found: { [name: string]: Special } = {};
  for (const [name, own] of Object.entries(NAMES)) {
    const id = keys.number(`tokenizer.ggml.${own}_token_id`);
    const content = id === undefined ? undefined : texts[id];
    if (content !== undefined) found[name] = { id: id as number, content };
  }
  return found;
}

/** What puts tokens before and after a text. */
function around(keys: Keys, before?: Special, after?: Special): TokenizerPart | null {
  if (!before && !after) return null;
  for (const token of [before, after]) {
    if (token && !token.content) throw refused(`${keys.place}: token ${token.id} has no text`);
  }
  const put = ({ content }: Special) => ({ SpecialToken: { id: content, type_id: 0 } });
  const text = (id: string) => ({ Sequence: { id, type_id: 0 } });
  const with_ = (id: string) => [
    ...(before ? [put(before)] : []),
    text(id),
    ...(after ? [put(after)] : []),
  ];
  const tokens = [before, after].filter((token) => token !== undefined);
  return {
    type: "TemplateProcessing",
    single: with_("A"),
    pair: [...with_("A"), ...with_("B")],
    special_tokens: Object.fromEntries(
      tokens.map(({ id, content }) => [content, { id: content, ids: [id], tokens: [content] }]),
    ),
  };
}

/** The template of conversations, or several with their names. */
function templateOf(keys: Keys): unknown {
  const key = "tokenizer.chat_template";
  const own = keys.text(key);
  const names = keys.texts(`${key}s`) ?? [];
  if (names.length === 0) return own;
  const named = names.map((name) => ({ name, template: keys.text(`${key}.${name}`) }));
  return [...(own === undefined ? [] : [{ name: "default", template: own }]), ...named];
}
