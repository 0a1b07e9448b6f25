/** Tokenizers in the files that came before tokenizer.json: `vocab.json` and `merges.txt`. */

import type { Source } from "../file-part.js";
import { corrupt } from "../file-part.js";
import { jsonIn } from "../json-file.js";
import { hintOf } from "../missing-file.js";
import { show } from "../options.js";
import { AS_IT_STANDS, byteLevel, splitInto } from "./byte-level.js";
import { classOf, type Fields, SPECIAL_NAMES, tokenText } from "./tokenizer-info.js";
import { QWEN_2_WORDS } from "./word-patterns.js";

type ReadFile = (from: Source, name: string) => Promise<string | undefined>;

/** Classes of transformers that have these files, and what they split texts with beside the bytes. */
const CLASSES: { readonly [name: string]: { readonly split?: string; readonly end: string } } = {
  GPT2Tokenizer: { end: "<|endoftext|>" },
  Qwen2Tokenizer: { split: QWEN_2_WORDS, end: "<|endoftext|>" },
};

/** How a tokenizer.json is had. */
const CURE =
  "transformers writes tokenizer.json: AutoTokenizer.from_pretrained(folder).save_pretrained(folder)";

/**
 * What tokenizer.json would be, of `vocab.json` and `merges.txt` in the way of GPT-2 and Qwen2.
 *
 * @throws TinyloomError `invalid-checkpoint` for another class, and without these files.
 */
export async function fromVocabulary(
  from: Source,
  config: Fields,
  read: ReadFile,
): Promise<Fields> {
  const vocabText = await read(from, "vocab.json");
  const mergesText = vocabText === undefined ? undefined : await read(from, "merges.txt");
  if (vocabText === undefined || mergesText === undefined) {
    const other = vocabText === undefined ? "vocab.json" : "merges.txt";
    throw corrupt(
      `${from.place("tokenizer.json")} is missing, and so is ${from.place(other)}; a tokenizer needs tokenizer.json, ` +
        `or vocab.json and merges.txt${await hintOf(from, "tokenizer.json")}. ${CURE}`,
    );
  }
  const name = classOf(config) ?? "GPT2Tokenizer";
  const known = Object.hasOwn(CLASSES, name) ? CLASSES[name] : undefined;
  if (!known) {
    throw corrupt(
      `${from.place("tokenizer.json")} is missing, and vocab.json is only read for ` +
        `${Object.keys(CLASSES).join(" and ")}, not for ${show(name)}. ${CURE}`,
    );
  }
  const vocab = objectOf(from, "vocab.json", vocabText);
  const addedText = await read(from, "added_tokens.json");
  const added = addedText === undefined ? {} : objectOf(from, "added_tokens.json", addedText);
  const bytes = {
    ...byteLevel(known.split === undefined),
    add_prefix_space: config["add_prefix_space"] === true,
    trim_offsets: false,
  };
  return {
    added_tokens: addedTokens(vocab, added, config, known.end),
    normalizer: known.split === undefined ? null : { type: "NFC" },
    pre_tokenizer: known.split === undefined ? bytes : splitInto(known.split, bytes),
    post_processor: null,
    decoder: { ...bytes, use_regex: true },
    model: { type: "BPE", vocab, merges: mergesOf(mergesText), byte_fallback: false },
  };
}

function objectOf(from: Source, name: string, text: string): Fields {
  const value = jsonIn(from.place(name), text, "invalid-checkpoint");
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return value as Fields;
  throw corrupt(`${from.place(name)} is no JSON object`);
}

/** A merge per line, below a line with the version. */
const mergesOf = (text: string): string[] =>
  text.split(/\r?\n/).filter((line) => line && !line.startsWith("#version"));

/** The tokens that are added: those of the files, and the special ones that the vocabulary has. */
function addedTokens(vocab: Fields, added: Fields, config: Fields, end: string): object[] {
  const tokens = new Map<string, object>();
  const put = (content: unknown, id: unknown, flags: object) => {
    if (typeof content !== "string" || tokens.has(content)) return;
    tokens.set(content, { ...AS_IT_STANDS, special: true, ...flags, id, content });
  };
  const listed: object = Object(config["added_tokens_decoder"]);
  for (const [id, one] of Object.entries(listed)) put(tokenText(one), Number(id), Object(one));
  const special = [end, ...SPECIAL_NAMES.map((name) => tokenText(config[`${name}_token`]))];
  for (const content of special) {
    const id = content === undefined ? undefined : (added[content] ?? vocab[content]);
    if (id !== undefined) put(content, id, {});
  }
  for (const [content, id] of Object.entries(added)) put(content, id, { special: false });
  return [...tokens.values()];
}
