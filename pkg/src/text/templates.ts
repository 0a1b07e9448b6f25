/** Chat templates: what they render of a conversation, and where each character of it comes from. */

import { inspect, invalid, isA, oneOf, type Rules, show } from "../options.js";
import type { PretrainedTokenizer } from "../tokenizer.js";
import type { TextEncoding } from "../tokenizer-types.js";
import { expectPlain, type Origin, toValue } from "./jinja/data.js";
import { toStr } from "./jinja/print.js";
import { type Template, template } from "./jinja/run.js";
import {
  codesOf,
  MARKED,
  TemplateFault,
  TemplateRefusal,
  textOf,
  type Value,
} from "./jinja/values.js";
import { copied, type Messages } from "./messages.js";
import { specialTokens } from "./special-tokens.js";
import type { TemplateOptions } from "./types.js";

/** Rules of what says how conversations are rendered. */
export const TEMPLATE: Rules<TemplateOptions> = {
  template: (value) =>
    typeof value === "string" && value
      ? undefined
      : "a template in Jinja, or the name of one of the tokenizer's",
  variables: (value) =>
    typeof value === "object" && value && !Array.isArray(value)
      ? undefined
      : "an object of values for the template",
  date: (value) =>
    isA(value, Date) && !Number.isNaN((value as Date).getTime()) ? undefined : "a Date",
  specialTokens: oneOf("text", "parse"),
};

/** Codes of texts that come from messages: the number of the message, from 1 on. */
export const ORIGINS = 0x7fff;
/** The code of what comes from tools, documents and other values of the caller. */
export const OTHER = ORIGINS;
/** Messages of a conversation at most, so that each has a code. */
const MOST_MESSAGES = OTHER - 1;

/** Fields that say what something is: templates make tags of their texts, such as `<|user|>`. */
const STRUCTURE = ["role", "type"];

/** A conversation as text, with the code of each UTF-16 unit: what it comes from, and whether the template marks it. */
export interface Rendered {
  readonly text: string;
  readonly codes: string;
}

/** The message or value that a unit of a rendered text comes from; 0 for the template. */
export const originAt = ({ codes }: Rendered, at: number) => codes.charCodeAt(at) & ORIGINS;
/** Whether a unit lies between `{% generation %}` and `{% endgeneration %}`. */
export const isMarked = ({ codes }: Rendered, at: number) => (codes.charCodeAt(at) & MARKED) !== 0;

/** A conversation as values of a template. */
export interface Chat {
  readonly what: string;
  readonly given: Messages;
  readonly messages: readonly Value[];
  readonly values: ReadonlyMap<string, Value>;
}

/** A template that was read. */
export interface ChatTemplate {
  /** Whether it marks the answers of this chat. */
  marks(chat: Chat): boolean;
  /** The values of a conversation; each is read once. */
  chat(what: string, given: Messages): Chat;
  /**
   * The text of messages.
   *
   * @param prompt - whether the beginning of an answer comes after them.
   * @param printed - gets the values other than texts that the template prints.
   * @throws {@link TinyloomError} in the template's own words where it refuses them.
   */
  render(chat: Chat, messages: readonly Value[], prompt: boolean, printed?: Set<object>): Rendered;
}

/** A message as a value of a template. */
export const messageOf = (role: string, content: string, code: number): Value =>
  toValue({ role, content }, { code, structure: STRUCTURE });

/**
 * Reads the template that is given, or else the tokenizer's.
 *
 * @param today - what `strftime_now` writes where no date is given.
 */
export function openTemplate(
  where: string,
  tokenizer: TextEncoding,
  options: TemplateOptions,
  today: () => Date,
): ChatTemplate {
  const { variables = {}, date } = options;
  const choose = templatesOf(where, tokenizer, options.template);
  const common = inspect(where, () => {
    const own = [...specialTokens(where, tokenizer), ...Object.entries(copied(variables))];
    return faults(
      where,
      () => new Map(own.map(([name, value]) => [name, valueBy(name, value)] as const)),
    );
  });
  const now = () => date ?? today();
  const toolsOf = ({ values }: Chat) => (values.get("tools") ?? null) !== null;
  return {
    marks: (chat) => choose(toolsOf(chat)).marks,
    chat: (what, given) => inspect(`${where}: ${what}`, () => chatOf(where, what, given, common)),
    render(chat, messages, prompt, printed) {
      const values = new Map(chat.values);
      values.set("messages", [...messages]);
      values.set("add_generation_prompt", prompt);
      const made = faults(`${where}: ${chat.what}`, () =>
        choose(toolsOf(chat)).render(values, now, printed),
      );
      return { text: textOf(made), codes: codesOf(made) };
    },
  };
}

/** A value for the template. Texts of tools and documents are the caller's; of other names they are the template's. */
function valueBy(name: string, value: unknown): Value {
  expectPlain(`the variable ${show(name)}`, value);
  const own = LISTS.includes(name) ? { code: OTHER, structure: STRUCTURE } : undefined;
  return toValue(value, own);
}

/** Values beside the messages that are lists: a template would go through the letters of a text. */
const LISTS = ["tools", "documents"];

function chatOf(
  where: string,
  what: string,
  given: Messages,
  common: ReadonlyMap<string, Value>,
): Chat {
  const { messages, ...others } = given;
  if (messages.length > MOST_MESSAGES) {
    throw invalid(
      `${where}: ${what} has ${messages.length} messages; at most ${MOST_MESSAGES} are allowed`,
    );
  }
  return faults(`${where}: ${what}`, () => {
    // transformers gives every template tools and documents: none where there are none.
    const values = new Map<string, Value>([["tools", null], ["documents", null], ...common]);
    for (const [name, value] of Object.entries(others)) {
      if (value !== undefined)
        values.set(name, toValue(value, { code: OTHER, structure: STRUCTURE }));
    }
    for (const name of LISTS) {
      const value = values.get(name);
      if (value === null || Array.isArray(value)) continue;
      throw invalid(
        `${where}: ${what}: ${name} is ${show(others[name] ?? textOf(toStr(value as Value)))}; give an array, or null`,
      );
    }
    const made = messages.map((message, at) => {
      const origin: Origin = { code: at + 1, structure: STRUCTURE };
      return toValue(message, origin);
    });
    return { what, given, messages: made, values };
  });
}

/** Runs what belongs to a template, and says what it refuses. */
function faults<T>(where: string, run: () => T): T {
  try {
    return run();
  } catch (cause) {
    if (cause instanceof TemplateRefusal) {
      throw invalid(
        `${where}: the template refuses this chat: ${cause.message}`,
        "invalid-options",
        cause,
      );
    }
    if (cause instanceof TemplateFault) {
      throw invalid(
        `${where}: the template cannot be rendered: ${cause.message}`,
        "invalid-options",
        cause,
      );
    }
    // Firefox tells a full stack by an InternalError; the other engines by a RangeError of these words.
    const { name, message } = Object(cause) as { name?: unknown; message?: unknown };
    if (name === "InternalError" || cause instanceof RangeError) {
      const stack = name === "InternalError" || /call stack/i.test(String(message));
      throw invalid(
        `${where}: the template needs more ${stack ? "of the stack" : "memory"} than there is`,
        "invalid-options",
        cause,
      );
    }
    throw cause;
  }
}

/** Templates that were read, by the tokenizer they were read for. */
const opened = new WeakMap<object, Map<string, Template>>();
/** Templates of one tokenizer that are kept at most. */
const MOST_TEMPLATES = 16;

function templatesRead(tokenizer: object): Map<string, Template> {
  const read = opened.get(tokenizer) ?? new Map<string, Template>();
  opened.set(tokenizer, read);
  return read;
}

/** Gives the template of a chat, with tools or without. Each is read once. */
function templatesOf(
  where: string,
  tokenizer: TextEncoding,
  given: string | undefined,
): (tools: boolean) => Template {
  const { chatTemplate, chatTemplates } = inspect(
    where,
    () => tokenizer as Partial<PretrainedTokenizer>,
  );
  const named: { readonly [name: string]: unknown } = { ...chatTemplates };
  const names = Object.keys(named);
  const read = templatesRead(tokenizer);
  const open = (source: unknown): Template => {
    if (typeof source !== "string" || !source) {
      const has = source === undefined ? "no chat template" : `${show(source)} as chat template`;
      const others = names.length > 0 ? `, but those of the names ${names.join(", ")}` : "";
      throw invalid(
        `${where}: the tokenizer has ${has}${others}; give { template }, a text in Jinja`,
      );
    }
    const made = read.get(source) ?? faults(where, () => template(source));
    if (read.size >= MOST_TEMPLATES) read.clear();
    read.set(source, made);
    return made;
  };
  if (given !== undefined) {
    const own = Object.hasOwn(named, given) ? named[given] : given;
    if (own === given && !given.includes("{")) {
      throw invalid(
        `${where}: the tokenizer has no template of the name ${show(given)}; it has ${names.join(", ") || "none"}`,
      );
    }
    const one = open(own);
    return () => one;
  }
  const one = open(chatTemplate ?? named["default"]);
  const ofTools = named["tool_use"];
  return (tools) => (tools && ofTools !== undefined ? open(ofTools) : one);
}
