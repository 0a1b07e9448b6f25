/** Files of JSON: an error names the file, and the place in it; loaded with what reads files. */

import { type ErrorCode, TinyloomError } from "./error.js";
import { kindOf } from "./file-kind.js";
import { show } from "./options.js";

/**
 * The value of a file's text.
 *
 * @param place - the file, for the message.
 * @throws TinyloomError with `code`.
 */
export function jsonIn(place: string, text: string, code: ErrorCode): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new TinyloomError(code, `${place} is not JSON${reason(text, cause)}`, { cause });
  }
}

function reason(text: string, cause: unknown): string {
  if (text.trim() === "") return ": it is empty; fetch the file again";
  const kind = kindOf(new TextEncoder().encode(text.slice(0, 512)));
  if (kind && kind.what !== "JSON") return `, but ${kind.what}: ${kind.cure}`;
  const at = endOfJson(text);
  if (at === undefined) return `: ${show(cause)}`;
  const lines = text.slice(0, at).split("\n");
  const where = `line ${lines.length}, column ${(lines.at(-1) as string).length + 1}`;
  if (at === text.length) return `: it ends too early, at ${where}; the file may be truncated`;
  const [rest = ""] = text.slice(at, at + 20).split("\n");
  return `: ${where} cannot be ${show(rest)}`;
}

const SPACE = /[ \t\n\r]*/y;
// A string is of what is no control character. Each is read in one way alone: a string without an end takes no longer.
const TOKEN =
  /"[ !#-[\]-\uffff]*(?:\\(?:["\\/bfnrt]|u[\da-fA-F]{4})[ !#-[\]-\uffff]*)*"|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null|[{}[\],:]/y;

/**
 * Where a text stops being JSON: the index of the first token that cannot stand there, or the text's length. Engines say
 * it in ways of their own, and some do not.
 *
 * @returns undefined for JSON.
 */
function endOfJson(text: string): number | undefined {
  const open: string[] = [];
  let [want, begun]: ["value" | "name" | ":" | "next", boolean] = ["value", false];
  for (let at = 0; ; ) {
    at = matched(SPACE, text, at).length + at;
    const token = matched(TOKEN, text, at);
    const closes = token !== "" && token === { "{": "}", "[": "]" }[open.at(-1) ?? ""];
    if (want === "next" && open.length === 0) return at === text.length ? undefined : at;
    if (closes && (want === "next" || begun)) {
      open.pop();
      [want, begun] = ["next", false];
    } else if (want === "next" && token === ",") {
      [want, begun] = [open.at(-1) === "{" ? "name" : "value", false];
    } else if (want === "name" && token.startsWith('"')) [want, begun] = [":", false];
    else if (want === ":" && token === ":") [want, begun] = ["value", false];
    else if (want === "value" && (token === "{" || token === "[")) {
      open.push(token);
      [want, begun] = [token === "{" ? "name" : "value", true];
    } else if (want === "value" && /^["\w-]/.test(token)) [want, begun] = ["next", false];
    else return at;
    at += token.length;
  }
}

/** What stands at that place of the text and fits the pattern; empty where nothing does. */
function matched(pattern: RegExp, text: string, at: number): string {
  pattern.lastIndex = at;
  return pattern.exec(text)?.[0] ?? "";
}
