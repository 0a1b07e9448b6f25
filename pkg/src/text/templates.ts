/** Chat templates: what they render of a conversation, and where each character of it comes from. */

import { inspect, invalid, isA, oneOf, type Rules, show } from "../options.js";
import type { PretrainedTokenizer, TextEncoding } from "../tokenizer.js";
import { type Origin, toValue } from "./jinja/data.js";
import { contents } from "./jinja/print.js";
import { type Template, template } from "./jinja/run.js";
import {
  codesOf,
  Dict,
  MARKED,
  TemplateFault,
  TemplateRefusal,
  textOf,
  type Value,
} from "./jinja/values.js";
import { copied, type Messages } from "./messages.js";
import type { TemplateOptions, TokenizerFiles } from "./types.js";

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
   * @param prompt - whether the beginning of an answer comes behind them.
   * @throws {@link TinyloomError} in the template's own words where it refuses them.
   */
  render(chat: Chat, messages: readonly Value[], prompt: boolean): Rendered;
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
    return new Map(own.map(([name, value]) => [name, valueBy(name, value)] as const));
  });
  const now = () => date ?? today();
  const toolsOf = ({ values }: Chat) => (values.get("tools") ?? null) !== null;
  return {
    marks: (chat) => choose(toolsOf(chat)).marks,
    chat: (what, given) => inspect(`${where}: ${what}`, () => chatOf(where, what, given, common)),
    render(chat, messages, prompt) {
      const values = new Map(chat.values);
      values.set("messages", [...messages]);
      values.set("add_generation_prompt", prompt);
      const made = faults(`${where}: ${chat.what}`, () =>
        choose(toolsOf(chat)).render(values, now),
      );
      return { text: textOf(made), codes: codesOf(made) };
    },
  };
}

/** A value for the template. Texts of tools and documents are the caller's; of other names they are the template's. */
const valueBy = (name: string, value: unknown): Value =>
  toValue(
    value,
    ["tools", "documents"].includes(name) ? { code: OTHER, structure: STRUCTURE } : undefined,
  );

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
    const made = messages.map((message, at) => {
      const origin: Origin = { code: at + 1, structure: STRUCTURE };
      const value = toValue(message, origin);
      const content = value instanceof Dict ? value.get("content") : undefined;
      if (Array.isArray(content) || content instanceof Dict)
        contents.set(content, { printed: false });
      return value;
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
    if (cause instanceof RangeError) {
      throw invalid(
        `${where}: the template needs more of the stack than there is`,
        "invalid-options",
        cause,
      );
    }
    throw cause;
  }
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
  const read = new Map<string, Template>();
  const open = (source: unknown): Template => {
    if (typeof source !== "string" || !source) {
      const has = source === undefined ? "no chat template" : `${show(source)} as chat template`;
      const others = names.length > 0 ? `, but those of the names ${names.join(", ")}` : "";
      throw invalid(
        `${where}: the tokenizer has ${has}${others}; give { template }, a text in Jinja`,
      );
    }
    const made = read.get(source) ?? faults(where, () => template(source));
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

/** Texts of special tokens by the names that templates use. */
function specialTokens(where: string, tokenizer: TextEncoding): [string, unknown][] {
  return inspect(`${where}: the tokenizer's save()`, () => {
    const own = tokenizer as Partial<PretrainedTokenizer>;
    const files = (tokenizer as { save?(): Partial<TokenizerFiles> | undefined }).save?.();
    const file = files?.["tokenizer_config.json"];
    const config: unknown = file ? JSON.parse(new TextDecoder().decode(file)) : {};
    const said = Object.entries((config ?? {}) as { [name: string]: unknown })
      .filter(([name]) => name.endsWith("_token"))
      .map(([name, value]) => [name, (value as { content?: unknown } | null)?.content ?? value]);
    const tokens = Object.entries(own.specialTokens ?? {});
    const found = tokens.map(([name, token]) => [`${name}_token`, token?.text]);
    const texts = [...said, ...found].filter(([, text]) => typeof text === "string");
    return texts as [string, string][];
  });
}
