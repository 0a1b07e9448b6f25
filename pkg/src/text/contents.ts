/** Messages whose content is no text: whether the template has a place for what they hold. */

import { isTinyloomError } from "../error.js";
import { invalid, show } from "../options.js";
import { Dict, TemplateRefusal, type Value } from "./jinja/values.js";
import type { Fields } from "./messages.js";
import { type Chat, type ChatTemplate, originAt, type Rendered } from "./templates.js";

/** Roles of results of tools, which templates print as data on purpose. */
const OF_TOOLS = ["tool", "ipython", "function"];

/**
 * The text of a chat. It refuses messages of which the template renders nothing, or data in the place of a text. A
 * message of tool calls needs no content where the template renders the calls.
 */
export function renderChat(
  where: string,
  template: ChatTemplate,
  chat: Chat,
  prompt: boolean,
): Rendered {
  const { messages } = chat.given;
  const wrong = (at: number, what: string) =>
    invalid(
      `${where}: ${chat.what}: message ${at} (of role ${show(messages[at]?.role)}) ${what}; give content, a text`,
    );
  for (const [at, { content }] of messages.entries()) {
    if (content === null || content === undefined || ["string", "object"].includes(typeof content))
      continue;
    throw wrong(at, `has ${show(content)} as content, which is no text`);
  }
  let made: Rendered | undefined;
  let failed: unknown;
  const printed = new Set<object>();
  try {
    made = template.render(chat, chat.messages, prompt, printed);
  } catch (cause) {
    if (!isTinyloomError(cause) || cause.cause instanceof TemplateRefusal) throw cause;
    failed = cause;
  }
  const seen = new Set(made ? origins(made) : []);
  for (const [at, message] of messages.entries()) {
    if (typeof message.content === "string") continue;
    const what = unread(template, chat, at, { made, seen, printed }, prompt);
    if (what !== undefined) throw wrong(at, what);
  }
  if (!made) throw failed;
  return made;
}

function* origins(made: Rendered): Generator<number> {
  let last = 0;
  for (let at = 0; at < made.text.length; at++) {
    const origin = originAt(made, at);
    if (origin !== last) yield origin;
    last = origin;
  }
}

/** What a template made of a chat. */
interface Seen {
  readonly made: Rendered | undefined;
  /** The messages of which it rendered a character. */
  readonly seen: ReadonlySet<number>;
  /** Values other than texts that it printed. */
  readonly printed: ReadonlySet<object>;
}

/** What is wrong with a message's content; undefined where it is rendered, or where something else is wrong. */
function unread(
  template: ChatTemplate,
  chat: Chat,
  at: number,
  { made, seen, printed: all }: Seen,
  prompt: boolean,
): string | undefined {
  const { role, content, ...others }: Fields = chat.given.messages[at] as Fields;
  /** The chat's text with other fields of this message; undefined where the template fails. */
  const text = (other: Fields) => withMessage(template, chat, at, { role, ...other }, prompt);
  if (content === undefined || content === null) {
    const names = Object.keys(others).filter((name) => others[name] != null);
    if (names.length > 0 && seen.has(at + 1)) return undefined;
    const own = made?.text;
    if (own !== undefined && names.length > 0 && own !== text({ content })) return undefined;
    if (own === undefined && text({ ...others, content: "" }) === undefined) return undefined;
    const only =
      names.length > 0 ? `, and the template renders nothing of ${names.join(", ")}` : "";
    return `has ${content === null ? "null as" : "no"} content${only}`;
  }
  if (OF_TOOLS.includes(role as string)) return undefined;
  const value = chat.messages[at];
  const own: Value | undefined = value instanceof Dict ? value.get("content") : undefined;
  const printed = all.has(own as object);
  if (made && !printed && (seen.has(at + 1) || made.text !== text({ ...others, content: "" }))) {
    return undefined;
  }
  if (!made && !printed && text({ ...others, content: "" }) === undefined) return undefined;
  return `has ${show(content)} as content, which the template does not turn into text`;
}

function withMessage(
  template: ChatTemplate,
  chat: Chat,
  at: number,
  other: Fields,
  prompt: boolean,
): string | undefined {
  try {
    const message = template.chat(chat.what, { messages: [other as never] }).messages[0] as Value;
    const messages = chat.messages.map((one, i) => (i === at ? message : one));
    return template.render(chat, messages, prompt).text;
  } catch (cause) {
    if (isTinyloomError(cause)) return undefined;
    throw cause;
  }
}
