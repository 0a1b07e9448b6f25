/** Ids of a rendered chat. Special tokens in its contents are text: a user's words cannot end a turn. */

import { encoded } from "../dataset-options.js";
import type { TextEncoding } from "../tokenizer-types.js";
import { originAt, type Rendered } from "./templates.js";

export type Encode = (made: Rendered) => Promise<readonly number[]>;

/** What encodes rendered chats, with special tokens of contents as text or as tokens. */
export function chatEncoder(
  tokenizer: TextEncoding,
  special: readonly string[],
  specialTokens: "text" | "parse",
): Encode {
  const parse = async (text: string) => Array.from(await encoded(tokenizer, text));
  if (specialTokens === "parse" || special.length === 0) return ({ text }) => parse(text);
  const pieces = new Pieces(tokenizer, special);
  return async (made) => {
    const found = pieces.split(made);
    if (!found.some(({ plain }) => plain)) return parse(made.text);
    const ids: number[] = [];
    for (const piece of found) for (const id of await pieces.encode(piece)) ids.push(id);
    return ids;
  };
}

/** Part of a text. `plain`: special tokens in it are text. */
interface Piece {
  readonly text: string;
  readonly plain: boolean;
  /** The special tokens before a plain piece and after it; empty where there is none. */
  readonly beside: readonly [before: string, after: string];
}

/** What a tokenizer does beside a special token. */
interface Habits {
  /** The special token takes white space before it, or after it. */
  readonly left: boolean;
  readonly right: boolean;
  /** What is after it has the ids of a text that begins there. */
  readonly same: boolean;
}

/** Beside it no tokenizer joins anything. */
const LINE = "\n";

class Pieces {
  readonly #tokenizer: TextEncoding;
  readonly #tags: RegExp;
  readonly #habits = new Map<string, Promise<Habits>>();

  constructor(tokenizer: TextEncoding, special: readonly string[]) {
    this.#tokenizer = tokenizer;
    const longest = [...special].sort((a, b) => b.length - a.length);
    const escaped = longest.map((one) => one.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&"));
    this.#tags = new RegExp(escaped.join("|"), "g");
  }

  /** The text at the template's own special tokens, so that what holds special tokens of contents stands alone. */
  split(made: Rendered): Piece[] {
    const pieces: Piece[] = [];
    let [begin, before, plain] = [0, "", false];
    const push = (end: number, after: string) => {
      const text = made.text.slice(begin, end);
      const last = pieces.at(-1);
      if (plain) pieces.push({ text, plain, beside: [before, after] });
      // What has none is encoded with what is before it, as it stands.
      else if (last && !last.plain) pieces[pieces.length - 1] = { ...last, text: last.text + text };
      else pieces.push({ text, plain, beside: ["", ""] });
      plain = false;
      begin = end;
    };
    this.#tags.lastIndex = 0;
    for (let found = this.#tags.exec(made.text); found; found = this.#tags.exec(made.text)) {
      const [tag] = found;
      const end = found.index + tag.length;
      if (isContent(made, found.index, end)) {
        plain = true;
        // One of the template may begin within it.
        this.#tags.lastIndex = found.index + 1;
        continue;
      }
      push(found.index, tag);
      push(end, "");
      before = tag;
    }
    push(made.text.length, "");
    return pieces.filter(({ text }) => text !== "");
  }

  async encode({ text, plain, beside: [before, after] }: Piece): Promise<readonly number[]> {
    if (!plain) return this.#ids(text, false);
    let own = text;
    if (before && (await this.#habitsOf(before)).right) own = own.trimStart();
    if (after && (await this.#habitsOf(after)).left) own = own.trimEnd();
    if (!before || (await this.#habitsOf(before)).same) return this.#ids(own, true);
    // The tokenizer puts a space before a text, and none after a token: it is taken off with a line's end before it.
    const line = await this.#ids(LINE, true);
    const whole = await this.#ids(LINE + own, true);
    return line.every((id, at) => id === whole[at])
      ? whole.slice(line.length)
      : this.#ids(own, true);
  }

  async #ids(text: string, plain: boolean): Promise<readonly number[]> {
    return Array.from(await encoded(this.#tokenizer, text, plain ? "text" : "parse"));
  }

  #habitsOf(token: string): Promise<Habits> {
    const found = this.#habits.get(token) ?? this.#look(token);
    this.#habits.set(token, found);
    return found;
  }

  async #look(token: string): Promise<Habits> {
    const ids = async (text: string) => (await this.#ids(text, false)).join();
    const alone = await ids(token);
    return {
      left: (await ids(LINE + token)) === alone,
      right: (await ids(token + LINE)) === alone,
      same: (await ids(`${token}a`)) === `${alone},${await ids("a")}`,
    };
  }
}

/** Whether all of a part comes from the caller. */
function isContent(made: Rendered, begin: number, end: number): boolean {
  for (let at = begin; at < end; at++) if (originAt(made, at) === 0) return false;
  return true;
}
