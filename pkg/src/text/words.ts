/**
 * How a tokenizer splits a text into words. `@huggingface/tokenizers` splits otherwise than Python in these, and is
 * given expressions for them that mean the same: digits and white space beyond ASCII, punctuation one by one, words at
 * `▁`, and the behaviours of `Split` beside `Isolated` and `Removed`. What it cannot compute is refused.
 */

import { corrupt } from "../file-part.js";
import { show } from "../options.js";
import { type Expression, expression, literal } from "./expressions.js";
import { partsOf, type TokenizerJson, type TokenizerPart } from "./tokenizer-json.js";

/** What the package is given, and the text that stands before a text's first word. */
export interface Words {
  readonly pre_tokenizer: TokenizerPart | null;
  readonly prefix: string;
}

const PUNCTUATION = String.raw`[\p{P}\x21-\x2f\x3a-\x40\x5b-\x60\x7b-\x7e]`;
const SPACE = String.raw`\p{White_Space}`;
/** A character of a word as Rust's `\w` has it. */
const WORD = String.raw`\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}`;

/** The words of GPT-2. White space is Unicode's, which JavaScript's `\s` is not. */
const GPT2 = String.raw`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`;

export function wordsOf(place: string, json: TokenizerJson): Words {
  const parts = partsOf(json.pre_tokenizer, "pretokenizers");
  let prefix = "";
  const words = parts.flatMap((part, at) => {
    if (part?.type !== "Metaspace") return wordsBy(place, part);
    const mark = part["replacement"] ?? "▁";
    if (typeof mark !== "string" || !mark) throw refused(place, part, "replacement");
    const first = part["prepend_scheme"] === "first";
    // Only a text's beginning is known here, and not whether a word has been one.
    if (first && at > 0) throw refused(place, part, "prepend_scheme");
    if (first) prefix = mark;
    const never = first || part["add_prefix_space"] === false;
    const spaces = { ...part, ...(never && { prepend_scheme: "never" }) };
    return part["split"] === false ? [spaces] : [spaces, split(literal(mark), "MergedWithNext")];
  }) as TokenizerPart[];
  const sequence = { type: "Sequence", pretokenizers: words };
  return { pre_tokenizer: words.length > 1 ? sequence : (words[0] ?? null), prefix };
}

function wordsBy(place: string, part: TokenizerPart): (TokenizerPart | undefined)[] {
  const wrong = (name: string): Error => refused(place, part, name);
  switch (part?.type) {
    case "Split":
      return [splitOf(place, part, wrong)];
    case "Digits":
      return [
        split(part["individual_digits"] ? String.raw`\p{N}` : String.raw`\p{N}+`, "Isolated"),
      ];
    case "FixedLength": // in characters, which may have two units
      return [split(String.raw`[\s\S]{1,${lengthOf(part) ?? raise(wrong("length"))}}`, "Isolated")];
    case "ByteLevel":
      return byteLevel(part);
    case "Whitespace":
      return [split(`[${WORD}]+|[^${WORD}${SPACE}]+`, "Kept")];
    case "WhitespaceSplit":
      return [split(`${SPACE}+`, "Removed")];
    case "BertPreTokenizer":
      return [split(`${SPACE}+`, "Removed"), split(PUNCTUATION, "Isolated")];
    case "Punctuation":
      return [split(PUNCTUATION, part["behavior"] ?? "Isolated") ?? raise(wrong("behavior"))];
    default:
      return [part]; // the package refuses what it does not know
  }
}

const lengthOf = ({ length }: { readonly [name: string]: unknown }): number | undefined =>
  Number.isSafeInteger(length) && (length as number) > 0 ? (length as number) : undefined;

/** The space before a text, the words, and their bytes. */
function byteLevel(part: TokenizerPart): (TokenizerPart | undefined)[] {
  const space = { type: "Replace", pattern: { Regex: String.raw`\A[^ ]` }, content: " $&" };
  return [
    part["add_prefix_space"] ? space : [],
    part["use_regex"] === false ? [] : split(GPT2, "Isolated"),
    { ...part, add_prefix_space: false, use_regex: false },
  ].flat();
}

function splitOf(place: string, part: TokenizerPart, wrong: (name: string) => Error) {
  const { String: text, Regex: regex } = Object(part["pattern"]) as {
    String?: unknown;
    Regex?: unknown;
  };
  if (typeof text !== "string" && typeof regex !== "string") throw wrong("pattern");
  const pattern =
    typeof text === "string"
      ? literal(text)
      : expression(`${place}: the expression of a Split`, regex as string);
  const { behavior, invert } = part;
  // Between matches and what is between them there is no difference where both stay by themselves.
  const plain = !invert || behavior === "Isolated";
  const kind = plain ? behavior : behavior === "Removed" ? "Kept" : undefined;
  return split(pattern, kind) ?? raise(wrong(plain ? "behavior" : "invert"));
}

function raise(error: Error): never {
  throw error;
}

/** A part that splits at an expression. `Kept` keeps what it matches, and nothing else. */
function split(pattern: string | Expression, behavior: unknown): TokenizerPart | undefined {
  const plain = behavior === "Kept" || behavior === "Removed";
  const given =
    typeof pattern === "string" ? { text: pattern, captures: false, empty: false } : pattern;
  const Regex = byBehavior(given, behavior);
  if (Regex === undefined) return undefined;
  return {
    type: "Split",
    pattern: { Regex },
    behavior: plain ? "Removed" : "Isolated",
    invert: behavior === "Kept",
  };
}

/**
 * An expression of the words that a behaviour gives. Undefined where there is none: what groups keep would be words, or
 * be kept twice, and words at a place without characters would be lost.
 */
function byBehavior(pattern: Expression, behavior: unknown): string | undefined {
  const { text, captures, empty } = pattern;
  if (behavior === "Isolated" || behavior === "Kept") return text;
  if (captures) return undefined;
  if (behavior === "Removed") return text;
  if (empty) return undefined;
  const one = /^\\x\{[0-9a-f]+\}$/.test(text);
  const gap = one ? `[^${text}]+` : String.raw`(?:(?!${text})[\s\S])+`;
  switch (behavior) {
    case "MergedWithPrevious":
      return `${gap}(?:${text})?|(?:${text})`;
    case "MergedWithNext":
      return `(?:${text})(?:${gap})?|${gap}`;
    case "Contiguous":
      return `(?:${text})+`;
    default:
      return undefined;
  }
}

const refused = (place: string, part: TokenizerPart, name: string) =>
  corrupt(
    `${place}: ${name} of the pre-tokenizer ${show(part?.type)} is ` +
      `${show(JSON.stringify(part?.[name]) ?? part?.[name])}, which is not computed here`,
  );
