/** `chat`: an answer to a conversation, as it is written. */

import type { With } from "./asked.js";
import { isTinyloomError, TinyloomError, throwIfAborted } from "./error.js";
import { GENERATE } from "./generate-options.js";
import type { GeneratedToken, GenerateOptions, Generation } from "./generate-types.js";
import { models } from "./internal.js";
import { tokenizersPart } from "./lazy.js";
import { Model } from "./model.js";
import { defaultEnds } from "./notes.js";
import { anything, check, copied, inspect, invalid, isA, type Rules, show } from "./options.js";
import { seeded } from "./seeds.js";
import type { ChatPrompt, Conversation, TemplateOptions } from "./text/types.js";
import type { TextDecoding, TextEncoding } from "./tokenizer-types.js";
import { evaluated } from "./watch.js";

/** Options of {@link chat}: those of `generate`, and how the conversation becomes a text. */
export interface ChatOptions
  extends Omit<GenerateOptions, "tokenizer" | "heal" | "maxTokens">,
    TemplateOptions {
  /** Tools that the model may call, as the template takes them: often JSON schemas of functions. */
  tools?: readonly unknown[];
  /** The most tokens of the answer; default 1024. */
  maxTokens?: number;
}

const TEMPLATE: Rules<TemplateOptions> = {
  template: anything,
  variables: anything,
  date: anything,
  specialTokens: anything,
};
const { tokenizer: _1, heal: _2, ...GENERATED } = GENERATE;
const CHAT: Rules<ChatOptions> = { ...GENERATED, ...TEMPLATE, tools: anything };

/** The most tokens of an answer by default: one that ends by itself is mostly shorter. */
const LONGEST = 1024;

interface Call {
  readonly model: Model;
  readonly tokenizer: TextEncoding & TextDecoding;
  readonly conversation: Conversation;
  readonly template: TemplateOptions;
  readonly own: GenerateOptions;
}

/**
 * A model's answer to a conversation: the chat template makes the prompt, and the answer ends where the template, the
 * model or the tokenizer end a turn. Special tokens are left out of `text`. The model keeps what it has read: with the
 * answer and the next message after them, the messages are not read again.
 *
 * @param messages - those so far; or an object that has them and further values for the template, such as
 * `enable_thinking`.
 * @returns the tokens of the answer, with their `text` and the `seed` that they are drawn with. `stopTokens` replaces all
 * ends of a turn, and `[]` leaves none. `stop` adds further ends.
 * @throws {@link TinyloomError} as {@link chatPrompt} and {@link Model.generate}, from the loop.
 *
 * @example
 * ```ts
 * const messages = [{ role: "user", content: "Why is the sky blue?" }];
 * let content = "";
 * for await (const { text } of chat(model, tokenizer, messages)) content += text;
 * messages.push({ role: "assistant", content }, { role: "user", content: "And at dusk?" });
 * for await (const { text } of chat(model, tokenizer, messages)) output.append(text);
 * ```
 */
export function chat(
  model: Model,
  tokenizer: TextEncoding & TextDecoding,
  messages: Conversation,
  options: ChatOptions & { alternatives: number },
): Generation<With<GeneratedToken, "text" | "alternatives">>;
export function chat(
  model: Model,
  tokenizer: TextEncoding & TextDecoding,
  messages: Conversation,
  options?: ChatOptions,
): Generation<With<GeneratedToken, "text">>;
export function chat(
  model: Model,
  tokenizer: TextEncoding & TextDecoding,
  messages: Conversation,
  options: ChatOptions = {},
): Generation<With<GeneratedToken, "text">> {
  const withSeed = evaluated(() => inspect("chat", () => seeded([options], 0)));
  const call = evaluated(() => callOf(model, tokenizer, messages, withSeed().values[0]));
  return Object.assign(answered(call), { seed: seedOf(withSeed) });
}

function seedOf(withSeed: () => ReturnType<typeof seeded>): number {
  try {
    return withSeed().own.seed as number;
  } catch {
    return 0; // the loop tells what threw
  }
}

function callOf(
  model: unknown,
  tokenizer: TextEncoding & TextDecoding,
  messages: Conversation,
  options: unknown,
): Call {
  if (!isA(model, Model)) throw invalid(`chat takes a Model first, not ${show(model)}`);
  if (inspect("chat", () => typeof tokenizer?.decoder !== "function")) {
    throw invalid(`chat takes a tokenizer second, not ${show(tokenizer)}`);
  }
  return inspect("chat", () => {
    const { tools, ...rest } = check<ChatOptions>("chat", options, CHAT);
    if (!Array.isArray(tools ?? []))
      throw invalid(`chat: tools is ${show(tools)}; give an array of tools, or leave it out`);
    const own: { [name: string]: unknown } = {};
    const template: { [name: string]: unknown } = {};
    for (const [name, value] of Object.entries(rest)) {
      (Object.hasOwn(TEMPLATE, name) ? template : own)[name] = value;
    }
    const said = copied(messages);
    const conversation = tools && {
      ...(Array.isArray(said) ? { messages: said } : said),
      tools: copied(tools),
    };
    return {
      model,
      tokenizer,
      conversation: (conversation || said) as Conversation,
      template,
      own: copied(own),
    };
  });
}

async function* answered(
  call: () => Call,
): AsyncGenerator<With<GeneratedToken, "text">, void, undefined> {
  const { model, tokenizer, conversation, template, own } = call();
  throwIfAborted(own.signal, "chat");
  const prompt = await promptOf(conversation, tokenizer, template);
  throwIfAborted(own.signal, "chat");
  const turn = own.stopTokens ? {} : endsOf(model, tokenizer, prompt);
  const stop = [...(own.stopTokens ? [] : prompt.stop), ...(own.stop ?? [])];
  const options = {
    maxTokens: LONGEST,
    skipSpecialTokens: true,
    ...own,
    ...turn,
    ...(stop.length > 0 && { stop }),
    tokenizer,
  };
  yield* model.generate(prompt.tokens, options);
}

/** The ends of a turn: the template's, the model's and the tokenizer's. */
function endsOf(
  model: Model,
  tokenizer: TextDecoding,
  { stopTokens }: ChatPrompt,
): { stopTokens: number[] } {
  const { ends } = models.of(model).notes;
  const endToken = inspect("chat: tokenizer", () => tokenizer.endToken);
  const vocabulary = model.config.vocab_size;
  return { stopTokens: defaultEnds([...ends, ...stopTokens], endToken, vocabulary) };
}

async function promptOf(
  conversation: Conversation,
  tokenizer: TextEncoding,
  template: TemplateOptions,
): Promise<ChatPrompt> {
  try {
    return await (await tokenizersPart()).chatPrompt(conversation, tokenizer, template);
  } catch (error) {
    if (!isTinyloomError(error)) throw error;
    const said = error.message.replace(/^chatPrompt/, "chat");
    throw new TinyloomError(error.code, said, { cause: error.cause });
  }
}
