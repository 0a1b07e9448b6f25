/** What tokenizer.json has to be. Another is refused by name: texts would lose characters, or get ids that no token has. */

import { corrupt } from "../file-part.js";
import { integer, show } from "../options.js";
import type { AddedToken, TokenizerJson } from "./tokenizer-json.js";

interface Fields {
  readonly [name: string]: unknown;
}

/** Makes the error of a value. */
type Wrong = (what: string, value: unknown, allowed: string) => Error;

/** Ids are below this: tables of ids are as long as the largest. The largest vocabularies have a million tokens. */
const MOST_IDS = 1 << 22;
const isId = (value: unknown) => integer(0, MOST_IDS - 1)(value) === undefined;
const ID = `a whole number of at least 0 and below ${MOST_IDS}`;

const isObject = (value: unknown): value is Fields =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** The parts of tokenizer.json that are read here, once they are what they have to be. */
export function checkedJson(place: string, json: Fields): TokenizerJson {
  const wrong: Wrong = (what, value, allowed) =>
    corrupt(`${place}: ${what} is ${show(value)}, and has to be ${allowed}`);
  const { added_tokens: given = null, model } = json;
  if (!isObject(model)) {
    throw corrupt(`${place} has no "model"; it is no tokenizer of Hugging Face`);
  }
  const added = addedOf(wrong, given);
  const { vocab, type } = model;
  if (isObject(vocab)) expectAdded(wrong, added, named(wrong, vocab));
  else if (type !== "BPE" && Array.isArray(vocab)) {
    expectAdded(wrong, added, listed(wrong, vocab, model["unk_id"]));
  } else throw wrong("model.vocab", vocab, "an object");
  expectMerges(place, wrong, model);
  return { ...json, added_tokens: added } as unknown as TokenizerJson;
}

function addedOf(wrong: Wrong, given: unknown): readonly AddedToken[] {
  if (given === null) return [];
  if (!Array.isArray(given)) throw wrong("added_tokens", given, "an array");
  for (const [at, one] of (given as unknown[]).entries()) {
    const { id, content } = isObject(one) ? one : ({} as Fields);
    if (!isId(id)) throw wrong(`the id of added_tokens[${at}]`, id, ID);
    if (typeof content !== "string") {
      throw wrong(`the content of added_tokens[${at}]`, content, "a string");
    }
  }
  return given as AddedToken[];
}

/** What the added tokens are held to. */
interface Vocabulary {
  readonly tokens: Map<unknown, string>;
  readonly idOf: (text: string) => number | undefined;
}

/** A vocabulary that has the ids by text. */
function named(wrong: Wrong, vocab: Fields): Vocabulary {
  const tokens = new Map<unknown, string>();
  for (const [token, id] of Object.entries(vocab)) {
    // Made for an error alone: there are hundreds of thousands of tokens.
    const what = () => `the id of ${show(token)} in model.vocab`;
    if (!isId(id)) throw wrong(what(), id, ID);
    if (tokens.has(id)) throw wrong(what(), id, `another than that of ${show(tokens.get(id))}`);
    tokens.set(id, token);
  }
  Object.setPrototypeOf(vocab, null); // a token may be named as a method of objects is
  return { tokens, idOf: (text) => vocab[text] as number | undefined };
}

/** That of Unigram: a list of texts and their scores, where the place is the id. A text may be there twice. */
function listed(wrong: Wrong, vocab: readonly unknown[], unknown: unknown): Vocabulary {
  const tokens = new Map<unknown, string>();
  const ids = new Map<string, number>();
  for (const [id, entry] of vocab.entries()) {
    const [text, score]: readonly unknown[] = Array.isArray(entry) ? entry : [];
    if (typeof text !== "string" || typeof score !== "number") {
      throw wrong(`model.vocab[${id}]`, entry, "a text and its score");
    }
    tokens.set(id, text);
    ids.set(text, id);
  }
  if (unknown !== undefined && unknown !== null && !tokens.has(unknown)) {
    throw wrong("model.unk_id", unknown, `an id of model.vocab, which has ${vocab.length} tokens`);
  }
  return { tokens, idOf: (text) => ids.get(text) };
}

/** An id is of one text, and a text has one id. */
function expectAdded(wrong: Wrong, added: readonly AddedToken[], { tokens, idOf }: Vocabulary) {
  const { size } = tokens;
  const before = new Map<string, number>();
  for (const [at, { id, content }] of added.entries()) {
    const what = `the id of added_tokens[${at}]`;
    const other = tokens.get(id) ?? content;
    if (other !== content) throw wrong(what, id, `another than that of ${show(other)}`);
    const same = before.get(content) ?? id;
    if (same !== id) throw wrong(what, id, `${same}, as in added_tokens before it`);
    // Tokenizers that were trained here before have every special token after the vocabulary: they load as they were.
    const known = tokens.has(id) || id === size + at ? id : (idOf(content) ?? id);
    if (known !== id) throw wrong(what, id, `${show(known)}, as in model.vocab`);
    before.set(content, id);
    tokens.set(id, content);
  }
}

function expectMerges(place: string, wrong: Wrong, model: Fields): void {
  const { type, merges } = model;
  if (type === "BPE" && !Array.isArray(merges)) throw wrong("model.merges", merges, "an array");
  for (const [at, one] of (Array.isArray(merges) ? (merges as unknown[]) : []).entries()) {
    const pair: readonly unknown[] =
      typeof one === "string" ? one.split(" ") : Array.isArray(one) ? one : [];
    if (pair.length !== 2 || !pair.every((text) => typeof text === "string")) {
      throw wrong(`model.merges[${at}]`, one, "two tokens");
    }
    if (type === "BPE") expectMerge(place, at, pair as Pair, model);
  }
}

type Pair = readonly [left: string, right: string];

/** Both tokens of a merge, and what they become, have ids: else texts would lose their characters. */
function expectMerge(place: string, at: number, [left, right]: Pair, model: Fields) {
  const { vocab, continuing_subword_prefix: prefix } = model;
  const rest = typeof prefix === "string" && right.startsWith(prefix) ? prefix.length : 0;
  for (const token of [left, right, `${left}${right.slice(rest)}`]) {
    if ((vocab as { readonly [token: string]: unknown })[token] === undefined) {
      throw corrupt(
        `${place}: model.merges[${at}] has to do with ${show(token)}, which is not in model.vocab`,
      );
    }
  }
}
