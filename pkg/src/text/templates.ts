/** Chat templates: what they render of a conversation, and which characters of it are answers. */

import { inspect, invalid, type Rules, show } from "../options.js";
import type { PretrainedTokenizer, TextEncoding } from "../tokenizer.js";
import { load } from "./peers.js";
import { partsOf, STRING } from "./template-parts.js";
import type { Message, TemplateOptions, TokenizerFiles } from "./types.js";

/** Rules of what says how conversations are rendered. */
export const TEMPLATE: Rules<TemplateOptions> = {
  template: (value) => (typeof value === "string" && value ? undefined : "a template in Jinja"),
  library: (value) =>
    ["string", "object"].includes(typeof value) && value
      ? undefined
      : "the module @huggingface/jinja, or its address",
};

interface Jinja {
  readonly Template: new (text: string) => { render(values: object): string };
}

/** A conversation as text, and the characters of it that are answers: where each begins and ends, alternating. */
export interface Rendered {
  readonly text: string;
  readonly answers: readonly number[];
}

/** A conversation as plain data. */
export interface Messages {
  readonly messages: readonly Message[];
  readonly [name: string]: unknown;
}

/** A template that was read, and what it says of itself. */
export interface ChatTemplate {
  /** Whether it marks the answers. */
  readonly marks: boolean;
  /**
   * The text of a conversation's messages, with the answers that the template marks.
   *
   * @param prompt - whether the beginning of an answer comes behind them.
   */
  render(what: string, conversation: Messages, prompt: boolean): Rendered;
}

/** An object of which nothing is known. */
export type Fields = { readonly [name: string]: unknown };

/** The messages of a conversation, in an object. Each property of the caller's objects is read once. */
export function expectConversation(where: string, given: unknown, what: string): Messages {
  return inspect(where, () => {
    const conversation = copied(Array.isArray(given) ? { messages: given } : given);
    const { messages } = conversation;
    const plain = Array.isArray(messages)
      ? Array.from<unknown, Message>(messages, message)
      : undefined;
    if (plain?.every(({ role }) => typeof role === "string")) {
      return { ...conversation, messages: plain };
    }
    throw invalid(`${where}: ${what} ${inAnotherForm(given, conversation, plain)}`);
  });
}

const MESSAGES =
  'give messages such as [{ role: "user", content: "…" }, { role: "assistant", content: "…" }]';

/** What is there instead of a conversation, and what to give. It looks at copies alone. */
function inAnotherForm(
  given: unknown,
  conversation: Fields,
  messages: readonly Fields[] | undefined,
): string {
  const wrong = messages?.findIndex(({ role }) => typeof role !== "string") ?? -1;
  const first = messages?.[wrong];
  if (first && CHAT.some((name) => name in first)) {
    return (
      `is a list of ${messages?.length} chats, not one; where a file is one array (JSON, not JSONL), give the array: ` +
      "JSON.parse(await file.text())"
    );
  }
  const names = Object.keys(first ?? (messages ? {} : conversation)).slice(0, 12);
  if (names.length === 0) return `is ${show(given)}; ${MESSAGES}`;
  const lacks = first ? `message ${wrong}, which has no text as role` : "no list of messages";
  return `has ${lacks}, but ${names.join(", ")}; ${MESSAGES}`;
}

/** What a chat has in the place of a message: its first message, or a field with all. */
const CHAT = ["0", "messages", "conversations"];

const message = (given: unknown) => copied(given) as Message;

/** What an object has, what it inherits, and what getters of its class give. */
function copied(given: unknown): { [name: string]: unknown } {
  const copy: { [name: string]: unknown } = {};
  if (typeof given !== "object" || given === null) return copy;
  const from = given as { [name: string]: unknown };
  for (const name in from) copy[name] = from[name];
  for (
    let prototype = Object.getPrototypeOf(from);
    prototype && prototype !== Object.prototype;
    prototype = Object.getPrototypeOf(prototype)
  ) {
    for (const [name, { get }] of Object.entries(Object.getOwnPropertyDescriptors(prototype))) {
      if (get && !(name in copy)) copy[name] = from[name];
    }
  }
  return copy;
}

/** Reads the template that is given, or else the tokenizer's. */
export async function openTemplate(
  where: string,
  tokenizer: TextEncoding,
  template: string | undefined,
  library: unknown,
): Promise<ChatTemplate> {
  const own = inspect(where, () => (tokenizer as Partial<PretrainedTokenizer>).chatTemplate);
  const source: unknown = template ?? own;
  if (typeof source !== "string" || !source) {
    throw invalid(
      `${where}: the tokenizer has ${own === undefined ? "no chat template" : `${show(own)} as chat template`}; ` +
        "give { template }, a text in Jinja",
    );
  }
  const { Template } = await load<Jinja>("jinja", library);
  const tokens = specialTokens(where, tokenizer);
  const { text, marks, mark } = rewritten(where, source);
  const foreign = LEFT.test(source);
  const read = inspect(`${where}: the template`, () => new Template(text));
  return {
    marks,
    render: (what, conversation, prompt) =>
      inspect(`${where}: ${what}`, () => {
        // The renderer takes no value by the name of its own `range`.
        const { range: limited, ...values } = { range, ...tokens, ...conversation };
        Object.assign(values, { [LIMITED]: limited, add_generation_prompt: prompt });
        const made: unknown = read.render(values);
        if (typeof made !== "string") {
          throw invalid(
            `${where}: ${what}: the template's library rendered ${show(made)}, no text`,
          );
        }
        const rendered = unmarked(`${where}: ${what}`, made, mark);
        if (marks && LEFT.test(rendered.text) && !foreign && !hasLeft(conversation)) {
          throw invalid(
            `${where}: ${what}: the template changes what stands between {% generation %} and ` +
              "{% endgeneration %}; put the changes inside the tags",
          );
        }
        return rendered;
      }),
  };
}

/** Texts of special tokens by the names that templates use. */
function specialTokens(where: string, tokenizer: TextEncoding): { [name: string]: unknown } {
  return inspect(`${where}: the tokenizer's save()`, () => {
    const files = (tokenizer as { save?(): Partial<TokenizerFiles> | undefined }).save?.();
    const file = files?.["tokenizer_config.json"];
    if (!file) return {};
    const config = JSON.parse(new TextDecoder().decode(file)) as { [name: string]: unknown } | null;
    const texts = Object.entries(config ?? {})
      .filter(([name]) => name.endsWith("_token"))
      .map(([name, value]) => [name, (value as { content?: unknown } | null)?.content ?? value]);
    return Object.fromEntries(texts.filter(([, text]) => typeof text === "string"));
  });
}

/** Numbers that `range` of a template gives at most: it makes them all at once. Jinja's sandbox allows as many. */
const LONGEST_RANGE = 100_000;

/** A template's `range`, which is Python's. */
function range(...given: unknown[]): number[] {
  const bounds = given.filter((one) => typeof one !== "object") as number[]; // a call also ends with its keywords
  const count = bounds.length;
  if (count < 1 || count > 3 || bounds.some((one) => typeof one !== "number")) {
    throw invalid("the template: range() takes one to three numbers");
  }
  const [start, stop, step = 1] = (count === 1 ? [0, ...bounds] : bounds) as [
    number,
    number,
    number?,
  ];
  const length = Math.ceil((stop - start) / step);
  if (!(Math.abs(length) <= LONGEST_RANGE)) {
    throw invalid(
      `the template: range(${bounds}) has ${step === 0 ? "a step of 0" : `${length} numbers`}; at most ` +
        `${LONGEST_RANGE} are allowed`,
    );
  }
  return Array.from({ length: Math.max(0, length) }, (_, at) => start + at * step);
}

const LIMITED = "limited_range";
/**
 * Strings, and each `range` that is no member. The renderer's own has no bound. All are renamed, not the calls alone:
 * a template may call it through parentheses or through a variable. A variable named `range` is renamed everywhere, so
 * it stays one.
 */
const RANGE = new RegExp(`${STRING}|(?<![.\\w])range(?!\\w)`, "gs");

/** The character of a mark for a digit. None is a digit or a letter: what changes these leaves marks whole. */
const hidden = (digits: string) =>
  digits.replace(/\d/g, (digit) => String.fromCodePoint(0xf0f00 + Number(digit)));
/** Half of each such character: what a cut mark leaves. */
const LEFT = /\udb83/;

/** Whether a text in the caller's data has what marks are made of. */
function hasLeft(value: unknown, seen = new Set<unknown>()): boolean {
  if (typeof value === "string") return LEFT.test(value);
  if (typeof value !== "object" || value === null || seen.has(value)) return false;
  seen.add(value);
  return Object.values(value).some((one) => hasLeft(one, seen));
}

/** The template with marks in the place of the tags around answers, and what finds the marks. */
function rewritten(where: string, source: string) {
  // No message knows the number.
  const number = hidden(String(Math.floor(Math.random() * 2 ** 48)).padStart(15, "0"));
  let text = "";
  let marks = false;
  let open = false;
  for (const part of partsOf(source)) {
    if (part.kind === "plain") text += part.text;
    else if (part.kind === "code") {
      text += part.text.replace(RANGE, (one) => (one === "range" ? LIMITED : one));
    } else {
      const begins = part.kind === "begin";
      if (open === begins) throw unpaired(where);
      [marks, open] = [true, begins];
      const [left, right] = part.trims ?? [];
      const mark = number + hidden(begins ? "0" : "1");
      text += `{%${left} if true %}${mark}{% endif ${right}%}`; // a tag takes white space as it did
    }
  }
  if (open) throw unpaired(where);
  return { text, marks, mark: new RegExp(`${number}([${hidden("01")}])`, "u") };
}

function unpaired(what: string) {
  return invalid(
    `${what}: {% generation %} and {% endgeneration %} of the template do not alternate; put the one before ` +
      "each answer and the other behind it",
  );
}

/** The text without its marks, and where they were. */
function unmarked(what: string, text: string, mark: RegExp): Rendered {
  const answers: number[] = [];
  let plain = "";
  text.split(mark).forEach((part, at) => {
    if (at % 2 === 0) {
      plain += part;
      return;
    }
    if (part !== hidden(String(answers.length % 2))) throw unpaired(what);
    answers.push(plain.length);
  });
  if (answers.length % 2 === 1) throw unpaired(what);
  return { text: plain, answers };
}
