/** What datasets are made of: options, a tokenizer, tokens. */

import type { DatasetOptions, TextOptions } from "./dataset-types.js";
import {
  awaited,
  fraction,
  inspect,
  integer,
  invalid,
  isA,
  type Rule,
  type Rules,
  seed,
  show,
  tokenList,
} from "./options.js";
import type { TokenStore } from "./text/store.js";
import { ByteTokenizer } from "./tokenizer.js";
import type { TextEncoding } from "./tokenizer-types.js";
import { asTokens, IGNORE_INDEX, type TokenIds } from "./tokens.js";

/** What `startTokens` is where the caller does not say it. */
const START_TOKENS = true;

const startTokens: Rule = (value) =>
  typeof value === "boolean" || tokenList(value) === undefined
    ? undefined
    : "true, false or an array of token ids";

/** Rules of {@link TextOptions}. */
export const TEXT: Rules<TextOptions> = {
  sequenceLength: integer(1, 0x7fff_ffff),
  validationFraction: fraction(),
  seed,
  startTokens,
};

/** Rules of {@link DatasetOptions}. */
export const DATASET: Rules<DatasetOptions> = {
  sequenceLength: integer(1, 0x7fff_ffff),
  validationFraction: fraction(),
  seed,
};

/** What a dataset is made of. */
export interface Prepared {
  readonly store: TokenStore;
  readonly options: DatasetOptions;
  readonly tokenizer?: TextEncoding;
  /** Whether the documents are conversations, which only a length that the caller gives may cut. */
  readonly chats?: boolean;
  /** Options that give the tokens of earlier versions, for whoever resumes a run of theirs. */
  readonly before?: readonly string[];
}

/** What is told of a dataset with tokens before its texts. */
export const WITHOUT_START = "startTokens: false";

/** The ids of the option `startTokens`; without it, what stands before every text, in datasets and in prompts. */
export async function startOf(
  tokenizer: Encoder,
  given: boolean | TokenIds = START_TOKENS,
): Promise<readonly number[]> {
  if (typeof given !== "boolean") return Array.from(given);
  if (!given || isA(tokenizer, ByteTokenizer)) return [];
  const own = inspect("the tokenizer", () => (tokenizer as { startTokens?: TokenIds }).startTokens);
  if (own === undefined || own === null) return beforeText(tokenizer);
  return Array.from(asTokens("the tokenizer's startTokens", own));
}

/** What encodes texts. */
type Encoder = Pick<TextEncoding, "encode">;

/** Whether a text begins with its start by itself: it stands once. */
export const startsWith = (ids: ArrayLike<number>, start: readonly number[]): boolean =>
  start.every((id, at) => ids[at] === id);

/** What a tokenizer puts before a text that does not name its start: it is asked with special tokens and without. */
async function beforeText(tokenizer: Encoder): Promise<readonly number[]> {
  const encode = (text: string, addSpecialTokens: boolean) =>
    awaited("the tokenizer's encode", () => tokenizer.encode(text, { addSpecialTokens }));
  // Of no text it gives its special tokens alone. One that fails there or gives nothing has none.
  const around = await encode("", true).catch(() => []);
  if (!(around?.length > 0)) return [];
  const [whole, plain] = [Array.from(await encode("a", true)), await encode("a", false)];
  const at = whole.findIndex((_, i) => Array.from(plain).every((id, j) => id === whole[i + j]));
  return whole.slice(0, Math.max(0, at));
}

/** One text whose windows begin with such ids. */
export function withStart(
  store: TokenStore,
  start: readonly number[],
  options: DatasetOptions,
  tokenizer?: TextEncoding,
): Prepared {
  const { sequenceLength = Number.POSITIVE_INFINITY } = options;
  if (start.length > 0 && sequenceLength <= start.length) {
    throw invalid(
      `sequenceLength is ${sequenceLength}, and each window begins with ${start.length} startTokens and has a token ` +
        `to learn: give at least ${start.length + 1}, or ${WITHOUT_START}`,
    );
  }
  store.windowStart = start;
  const before = start.length > 0 ? [WITHOUT_START] : [];
  return { store, options, before, ...(tokenizer && { tokenizer }) };
}

/** What has `encode`, from whichever realm. */
export function expectTokenizer(where: string, tokenizer: unknown): TextEncoding {
  const given = tokenizer as TextEncoding;
  if (inspect(where, () => typeof given?.encode !== "function")) {
    throw invalid(
      `${where} takes a tokenizer, such as new ByteTokenizer(), not ${show(tokenizer)}`,
    );
  }
  return given;
}

/**
 * The ids of a text, without special tokens around it.
 *
 * @param specialTokens - what special tokens in the text are.
 */
export async function encoded(
  tokenizer: TextEncoding,
  text: string,
  specialTokens: "parse" | "text" = "parse",
): Promise<Uint32Array> {
  const special = specialTokens === "text" ? { specialTokens } : {};
  const encode = () => tokenizer.encode(text, { addSpecialTokens: false, ...special });
  const name = "encode(text)";
  const ids = asTokens(name, await awaited("the tokenizer's encode", encode));
  // So unsigned numbers hold the -1 of `indexOf`, which is refused by its place.
  return ids.includes(IGNORE_INDEX) ? asTokens(name, [...new Int32Array(ids)]) : ids;
}
