/** Messages whose content is no text: whether the template has a place for what they hold. */

import { inspect, invalid, show } from "../options.js";
import type { ChatTemplate, Fields, Messages } from "./templates.js";
import type { Message } from "./types.js";

/** A field that no message has. What renders it prints an object as data. */
const MARK = "\u{f0f03}";

/** Roles of results of tools, which templates print as data on purpose. */
const OF_TOOLS = ["tool", "ipython", "function"];

/**
 * Refuses messages of which the template renders nothing, or data in the place of a text. A message of
 * tool calls needs no content where the template renders the calls.
 */
export function expectContents(
  where: string,
  what: string,
  conversation: Messages,
  { render }: ChatTemplate,
): void {
  const { messages } = conversation;
  messages.forEach((message, at) => {
    /** The conversation's text with another message in this place; undefined where the template fails. */
    const text = (other: object) => {
      const changed = messages.map((one, i) => (i === at ? (other as Message) : one));
      try {
        return render(what, { ...conversation, messages: changed }, false).text;
      } catch {
        return undefined;
      }
    };
    const wrong = inspect(`${where}: ${what}`, () => unread(message, text));
    if (wrong === undefined) return;
    throw invalid(
      `${where}: ${what}: message ${at} (of role ${show(message.role)}) ${wrong}; give content, a text`,
    );
  });
}

/** What is wrong with a message's content; undefined where it is rendered. */
function unread(message: Fields, text: (other: object) => string | undefined): string | undefined {
  const { role, content, ...others } = message;
  if (typeof content === "string") return undefined;
  if (content === undefined || content === null) {
    const names = Object.keys(others).filter((name) => others[name] != null);
    const whole = names.length > 0 ? text(message) : undefined;
    if (whole !== undefined && whole !== text({ role, content })) return undefined;
    const fails = whole === undefined && text({ ...message, content: "" }) === undefined;
    if (names.length > 0 && fails) return undefined; // it is not for this content
    const only =
      names.length > 0 ? `, and the template renders nothing of ${names.join(", ")}` : "";
    return `has ${content === null ? "null as" : "no"} content${only}`;
  }
  if (typeof content !== "object") return `has ${show(content)} as content, which is no text`;
  if (OF_TOOLS.includes(role as string)) return undefined;
  const marked = text({ ...message, content: withMarks(content) });
  const empty = text({ ...message, content: "" });
  if (marked === undefined ? empty === undefined : marked !== empty && !marked.includes(MARK)) {
    return undefined; // where both fail, it is not for this content
  }
  return `has ${show(content)} as content, which the template does not turn into text`;
}

function withMarks(content: object): unknown {
  const marked = (part: unknown) =>
    typeof part === "object" && part ? { ...part, [MARK]: "" } : part;
  return Array.isArray(content) ? Array.from(content, marked) : marked(content);
}
