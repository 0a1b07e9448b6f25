/** What the files of a tokenizer say of its special tokens. They are large, so they are read once. */

import { inspect } from "../options.js";
import type { PretrainedTokenizer } from "../tokenizer.js";
import type { TextEncoding } from "../tokenizer-types.js";
import type { TokenizerFiles } from "./types.js";

interface Special {
  /** Texts by the names that templates use, such as `bos_token`. */
  readonly named: readonly (readonly [string, unknown])[];
  /** The texts that tokenizer.json lists as special. */
  readonly texts: readonly string[];
}

/** What was read of tokenizers. */
const known = new WeakMap<object, Special>();

/** Texts of special tokens by the names that templates use. */
export const specialTokens = (where: string, tokenizer: TextEncoding): Special["named"] =>
  specialOf(where, tokenizer).named;

/** The texts of a tokenizer's special tokens: those that its tokenizer.json lists as such. */
export const specialTexts = (where: string, tokenizer: TextEncoding): readonly string[] =>
  specialOf(where, tokenizer).texts;

function specialOf(where: string, tokenizer: TextEncoding): Special {
  const found =
    known.get(tokenizer) ??
    inspect(`${where}: the tokenizer's save()`, () => {
      const files = (tokenizer as { save?(): Partial<TokenizerFiles> | undefined }).save?.();
      const own = tokenizer as Partial<PretrainedTokenizer>;
      return {
        named: namedBy(files?.["tokenizer_config.json"], own.specialTokens),
        texts: textsIn(files?.["tokenizer.json"]),
      };
    });
  known.set(tokenizer, found);
  return found;
}

function namedBy(
  file: Uint8Array | undefined,
  special: PretrainedTokenizer["specialTokens"] | undefined,
): Special["named"] {
  const config: unknown = file ? parsed(file) : {};
  const said = Object.entries((config ?? {}) as { [name: string]: unknown })
    .filter(([name]) => name.endsWith("_token"))
    .map(([name, value]) => [name, (value as { content?: unknown } | null)?.content ?? value]);
  const found = Object.entries(special ?? {}).map(([name, token]) => [
    `${name}_token`,
    token?.text,
  ]);
  const texts = [...said, ...found].filter(([, text]) => typeof text === "string");
  return texts as [string, string][];
}

function textsIn(file: Uint8Array | undefined): readonly string[] {
  if (!file) return [];
  const { added_tokens: added } = parsed(file) as {
    added_tokens?: readonly { content?: unknown; special?: unknown }[];
  };
  const special = (added ?? []).filter((one) => one.special && typeof one.content === "string");
  return special.map((one) => one.content as string).filter(Boolean);
}

const parsed = (file: Uint8Array): unknown => JSON.parse(new TextDecoder().decode(file));
