/** Conversations as plain data. Each property of the caller's objects is read once. */

import { inspect, invalid, show } from "../options.js";
import type { Message } from "./types.js";

/** A conversation as plain data. */
export interface Messages {
  readonly messages: readonly Message[];
  readonly [name: string]: unknown;
}

/** An object of which nothing is known. */
export type Fields = { readonly [name: string]: unknown };

/** The messages of a conversation, in an object. */
export function expectConversation(where: string, given: unknown, what: string): Messages {
  return inspect(where, () => {
    const conversation = copied(Array.isArray(given) ? { messages: given } : given);
    const { messages } = conversation;
    const plain = Array.isArray(messages)
      ? Array.from<unknown, Message>(messages, (one) => copied(one) as Message)
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
      `is a list of ${messages?.length} chats, not one; give the list itself, or a file that has it: one JSON array, or JSONL ` +
      "with a chat in each line"
    );
  }
  if (first && Object.keys(first).length === 0) {
    const lists = conversation["messages"] as readonly unknown[];
    return `has ${show(lists[wrong])} as message ${wrong}; ${MESSAGES}`;
  }
  const names = Object.keys(first ?? (messages ? {} : conversation)).slice(0, 12);
  if (names.length === 0) return `is ${show(given)}; ${MESSAGES}`;
  const lacks = first ? `message ${wrong}, which has no text as role` : "no list of messages";
  return `has ${lacks}, but ${names.join(", ")}; ${MESSAGES}`;
}

/** What a chat has in the place of a message: its first message, or a field with all. */
const CHAT = ["0", "messages", "conversations"];

const PLAIN = { enumerable: true, configurable: true, writable: true };

/** What an object has, what it inherits, and what getters of its class give. */
export function copied(given: unknown): { [name: string]: unknown } {
  const copy: { [name: string]: unknown } = {};
  if (typeof given !== "object" || given === null) return copy;
  const from = given as { [name: string]: unknown };
  for (const name in from) {
    if (name !== "__proto__") copy[name] = from[name];
    // Assigned, a field of this name, which JSON.parse makes, would become what the copy inherits from.
    else Object.defineProperty(copy, name, { value: from[name], ...PLAIN });
  }
  for (
    let prototype = Object.getPrototypeOf(from);
    prototype && prototype !== Object.prototype;
    prototype = Object.getPrototypeOf(prototype)
  ) {
    for (const [name, { get }] of Object.entries(Object.getOwnPropertyDescriptors(prototype))) {
      if (get && name !== "__proto__" && !Object.hasOwn(copy, name)) copy[name] = from[name];
    }
  }
  return copy;
}
