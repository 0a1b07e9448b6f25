/** What a tokenizer's files say besides how to encode: special tokens and templates of conversations. */

import type { SpecialTokens } from "../tokenizer-types.js";
import { idOf, type TokenizerJson } from "./tokenizer-json.js";
import type { TokenizerFiles } from "./types.js";

/** What a tokenizer's files say besides how to encode. */
export interface TokenizerInfo {
  /** The files that `save` gives. */
  readonly files: TokenizerFiles;
  readonly endToken: number | undefined;
  readonly specialTokens: SpecialTokens;
  readonly chatTemplate: string | undefined;
  readonly chatTemplates: { readonly [name: string]: string };
}

export interface Fields {
  readonly [name: string]: unknown;
}

/** Files that may say something of a tokenizer. Undefined where one is not there. */
export interface InfoFiles {
  readonly tokenizerConfig: Fields;
  readonly specialTokensMap: Fields;
  /** The model's config. */
  readonly modelConfig: Fields;
  /** Templates of files: `default` is that of chat_template.jinja. */
  readonly templates: { readonly [name: string]: string };
  /** chat_template.json, which processors of images have. */
  readonly processorTemplates: Fields;
}

export const SPECIAL_NAMES = ["bos", "eos", "unk", "pad", "sep", "cls", "mask"] as const;

/** A special token as configs have it: its text, or an object with it. */
export function tokenText(value: unknown): string | undefined {
  const text = typeof value === "object" ? (value as { content?: unknown } | null)?.content : value;
  return typeof text === "string" ? text : undefined;
}

const END = "<|endoftext|>";

/** What the classes of transformers take where files are silent. */
const CLASSES: { readonly [name: string]: Fields } = {
  GPT2Tokenizer: { bos: END, eos: END, unk: END },
  CodeGenTokenizer: { bos: END, eos: END, unk: END },
  GPTNeoXTokenizer: { bos: END, eos: END, unk: END },
  Qwen2Tokenizer: { eos: END, unk: END, pad: END },
  LlamaTokenizer: { bos: "<s>", eos: "</s>", unk: "<unk>" },
  GemmaTokenizer: { bos: "<bos>", eos: "<eos>", unk: "<unk>", pad: "<pad>" },
};

/** The names of a tokenizer's class without that of its implementation. */
export const classOf = ({ tokenizer_class: name }: Fields): string | undefined =>
  typeof name === "string" ? name.replace(/Fast$/, "") : undefined;

/**
 * The special tokens of the files: what tokenizer_config.json says, then special_tokens_map.json, then the ids of the
 * model's config, then the class. A name with null has none.
 */
export function specialTokensOf(json: TokenizerJson, files: InfoFiles): SpecialTokens {
  const { tokenizerConfig, specialTokensMap, modelConfig } = files;
  const name = classOf(tokenizerConfig);
  const ofClass = name && Object.hasOwn(CLASSES, name) ? CLASSES[name] : {};
  const found: { [name: string]: { text: string; id: number | undefined } } = {};
  for (const one of SPECIAL_NAMES) {
    const given = [tokenizerConfig, specialTokensMap].map((file) => file[`${one}_token`]);
    const said = given.find((value) => value !== undefined);
    const id: unknown = said === undefined ? modelConfig[`${one}_token_id`] : undefined;
    const text =
      tokenText(said) ??
      (said === undefined ? (textOf(json, id) ?? known(json, ofClass?.[one])) : undefined);
    if (text !== undefined) found[one] = { text, id: idOf(json, text) };
  }
  return found;
}

/** The text of an id; of a list of ids, that of the first. */
function textOf({ added_tokens, model }: TokenizerJson, given: unknown): string | undefined {
  const id: unknown = Array.isArray(given) ? given[0] : given;
  if (!Number.isInteger(id)) return undefined;
  const added = added_tokens.find((token) => token.id === id);
  if (added) return added.content;
  if (Array.isArray(model.vocab)) return tokenText((model.vocab as unknown[][])[id as number]?.[0]);
  return Object.keys(model.vocab).find((text) => model.vocab[text] === id);
}

/** The text of a class, where the vocabulary has it. */
const known = (json: TokenizerJson, text: unknown): string | undefined =>
  typeof text === "string" && idOf(json, text) !== undefined ? text : undefined;

/** The templates of conversations by name: those of files, or those of tokenizer_config.json. */
export function chatTemplatesOf(files: InfoFiles): { readonly [name: string]: string } {
  const { templates, tokenizerConfig, processorTemplates } = files;
  if (Object.keys(templates).length > 0) return templates;
  const own = named(tokenizerConfig["chat_template"]);
  return own ?? named(processorTemplates["chat_template"]) ?? {};
}

/** A template, or a list of templates with their names, or an object of them. */
function named(given: unknown): { readonly [name: string]: string } | undefined {
  if (typeof given === "string") return { default: given };
  if (typeof given !== "object" || given === null) return undefined;
  const entries: readonly (readonly [unknown, unknown])[] = Array.isArray(given)
    ? given.map((one: { name?: unknown; template?: unknown } | null) => [one?.name, one?.template])
    : Object.entries(given);
  const texts = entries.filter(([name, text]) =>
    [name, text].every((one) => typeof one === "string"),
  );
  return Object.fromEntries(texts as [string, string][]);
}
