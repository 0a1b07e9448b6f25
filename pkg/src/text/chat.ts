/** `chatPrompt`: what a model reads before it answers. */

import { encoded, expectTokenizer } from "../dataset-options.js";
import { check, inspect } from "../options.js";
import type { TextEncoding } from "../tokenizer-types.js";
import { chatEncoder } from "./chat-encoding.js";
import { renderChat } from "./contents.js";
import { expectConversation } from "./messages.js";
import { specialTexts } from "./special-tokens.js";
import { common, endOfTurn, firstTag, tagsBy, tailOf, textBetween } from "./tails.js";
import { type Chat, type ChatTemplate, messageOf, openTemplate, TEMPLATE } from "./templates.js";
import type { ChatPrompt, TemplateOptions } from "./types.js";

const WHERE = "chatPrompt";

export async function chatPrompt(
  given: unknown,
  tokenizer: TextEncoding,
  options: TemplateOptions,
): Promise<ChatPrompt> {
  const checked = check(WHERE, options, TEMPLATE);
  const encoding = expectTokenizer(WHERE, tokenizer);
  const conversation = expectConversation(WHERE, given, "the conversation");
  const template = openTemplate(WHERE, encoding, checked, () => new Date());
  const chat = template.chat("the conversation", conversation);
  const made = renderChat(WHERE, template, chat, true);
  const special = specialTexts(WHERE, encoding);
  const encode = chatEncoder(encoding, special, checked.specialTokens ?? "text");
  const tokens = Uint32Array.from(await encode(made));
  const stop = stopOf(template, chat, special);
  return { text: made.text, tokens, stop, stopTokens: await stopTokens(encoding, stop, special) };
}

const user = (code: number) => messageOf("user", "Why?", code);
const assistant = (code: number) => messageOf("assistant", "So.", code);

/**
 * What ends an answer: the first special token that the template puts after one. Without one, what a chat that ends with
 * an answer has in common with one that goes on; and where that is white space, which answers have too, all that stands
 * before the user's next words. The template may refuse such chats: then nothing is known.
 */
function stopOf(template: ChatTemplate, chat: Chat, special: readonly string[]): string[] {
  const asked = [chat.messages, [user(1)]].find((before) => {
    const answered = [...before, assistant(before.length + 1)];
    return tailOf(template, chat, answered, false)?.from === answered.length;
  });
  if (!asked) return [];
  const answered = [...asked, assistant(asked.length + 1)];
  const end = tailOf(template, chat, answered, false)?.text ?? "";
  const tags = tagsBy(special);
  const next = textBetween(
    template,
    chat,
    [...answered, user(answered.length + 1)],
    answered.length,
  );
  // A template that puts nothing after an answer leaves its end to the next header.
  const tag = firstTag(end === "" ? (next ?? "") : end, tags);
  if (tag && (special.length > 0 ? end !== "" || tag.index === 0 : tag.index === 0))
    return [tag.text];
  const shared = next === undefined ? end : common(end, next);
  const own = shared === end ? end : endOfTurn(shared, tags);
  if (own.trim()) return [own.trim()];
  return next?.trim() ? [next] : [];
}

/** The ids that end an answer: special tokens of `stop`, and the one with which the tokenizer ends texts. */
async function stopTokens(
  tokenizer: TextEncoding,
  stop: readonly string[],
  special: readonly string[],
): Promise<number[]> {
  const ids = new Set<number>();
  for (const text of stop) {
    if (!special.includes(text)) continue;
    const [id, ...more] = await encoded(tokenizer, text);
    if (id !== undefined && more.length === 0) ids.add(id);
  }
  const { endToken } = inspect("the tokenizer", () => tokenizer as { endToken?: unknown });
  if (typeof endToken === "number") ids.add(endToken);
  return [...ids];
}
