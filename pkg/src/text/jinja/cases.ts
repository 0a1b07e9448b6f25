/** Upper and lower case of texts, as Python has them. */

import { SPACE } from "./lex.js";
import { charge } from "./limits.js";
import { fault, like, type Str, textOf } from "./values.js";

export function capitalized(text: Str): Str {
  const [first = "", ...rest] = Array.from(textOf(text));
  return like(text, titled(first) + lowered(rest.join(""), first));
}

/** In lower case, where a sigma at the end of a word depends on what is before it. */
const lowered = (text: string, before: string) =>
  (before + text).toLowerCase().slice(before.toLowerCase().length);

/** The form of a character at the beginning of a word. */
function titled(character: string): string {
  if (
    /[\u01c4-\u01cc\u01f1-\u01f3\u1f80-\u1faf\u1fb2-\u1fb4\u1fb7\u1fbc\u1fc2-\u1fc4\u1fc7\u1fcc\u1ff2-\u1ff4\u1ff7\u1ffc]/.test(
      character,
    )
  ) {
    throw fault(`it writes ${character} at the beginning of a word, which is not known here`);
  }
  if (/[\u10d0-\u10ff]/.test(character)) return character; // Georgian begins no word in capitals
  if (character === "\u0149") return "\u02bcN"; // the apostrophe is no letter with a case
  const upper = character.toUpperCase();
  const [first = "", ...rest] = Array.from(upper);
  return first + rest.join("").toLowerCase();
}

export const upper = (text: Str) => like(text, textOf(text).toUpperCase());
export const lower = (text: Str) => like(text, textOf(text).toLowerCase());

/** Letters that fold otherwise than to the lower case of their capitals: Turkish and Cherokee ones. */
const FOLDED_OTHERWISE = /[\u0131\u13a0-\u13fd\uab70-\uabbf]/;

/** Python's `casefold()`: so ß is ss, and ς is σ. Each character is folded alone. */
export function caseFolded(text: Str): Str {
  const own = textOf(text);
  const other = FOLDED_OTHERWISE.exec(own)?.[0];
  if (other) throw fault(`it calls casefold() of ${other}, which is not known here`);
  charge(own.length);
  const made = Array.from(own, (one) => one.toLowerCase().toUpperCase().toLowerCase());
  return like(text, made.join(""));
}

export function titleCase(text: Str): Str {
  return like(
    text,
    textOf(text).replace(/\p{Cased}+/gu, (word) => {
      const [first = "", ...rest] = Array.from(word);
      return titled(first) + lowered(rest.join(""), first);
    }),
  );
}

/** Jinja's filter `title`. */
export function titleFilter(text: Str): Str {
  const parts = textOf(text).split(new RegExp(`([-({\\[<${SPACE}]+)`));
  const made = parts.map((part) => {
    const [first = "", ...rest] = Array.from(part);
    return first.toUpperCase() + lowered(rest.join(""), "");
  });
  return like(text, made.join(""));
}
