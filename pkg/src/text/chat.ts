/** `chatPrompt`: what a model reads before it answers. */

import { expectTokenizer } from "../dataset-options.js";
import { check } from "../options.js";
import type { TextEncoding } from "../tokenizer.js";
import { encoder } from "./build.js";
import { expectContents } from "./contents.js";
import { expectConversation, openTemplate, TEMPLATE } from "./templates.js";
import type { ChatPrompt, TemplateOptions } from "./types.js";

const WHERE = "chatPrompt";

/** An answer that no template has in itself: a character of the private use areas. */
const ANSWER = "\u{f0f02}";

export async function chatPrompt(
  given: unknown,
  tokenizer: TextEncoding,
  options: TemplateOptions,
): Promise<ChatPrompt> {
  const { template, library } = check(WHERE, options, TEMPLATE);
  const encoding = expectTokenizer(WHERE, tokenizer);
  const conversation = expectConversation(WHERE, given, "the conversation");
  const opened = await openTemplate(WHERE, encoding, template, library);
  expectContents(WHERE, "the conversation", conversation, opened);
  const { render } = opened;
  const answered = [...conversation.messages, { role: "assistant", content: ANSWER }];
  const all = { ...conversation, messages: answered };
  const { text } = render("the conversation", conversation, true);
  const { text: whole } = render("an answer", all, false);
  const at = whole.lastIndexOf(ANSWER);
  const behind = at < 0 ? "" : whole.slice(at + ANSWER.length);
  const stop = behind.trim() || behind;
  const tokens = Uint32Array.from(await encoder(encoding)(text));
  return { text, tokens, stop: stop ? [stop] : [] };
}
