/** The elements of a JSON array, which may be larger than memory. */

import { invalid, show } from "../options.js";

const [QUOTE, BACKSLASH, COMMA] = [0x22, 0x5c, 0x2c];
const [OPENS, CLOSES] = [new Set([0x5b, 0x7b]), new Set([0x5d, 0x7d])];

/**
 * The elements one by one, with their numbers from 0 on. `JSON.parse` reads each; here it is only found where each
 * ends, so that no more than one is in memory: the whole would take several times the file.
 */
export async function* jsonElements(
  where: string,
  texts: AsyncIterable<string>,
): AsyncGenerator<[value: unknown, index: number]> {
  const scan = new Scan(where);
  for await (const text of texts) yield* scan.push(text);
  scan.end();
}

/** What to do with a text that only begins as an array. */
const AS_TEXT = 'where this is no JSON, format: "text" takes it as one text';

class Scan {
  readonly #where: string;
  #index = 0;
  /** What is there of the element that has begun. */
  #rest = "";
  /** Arrays and objects that are open: 0 before the array and after it. */
  #depth = 0;
  #over = false;
  #quoted = false;
  #escaped = false;

  constructor(where: string) {
    this.#where = where;
  }

  *push(text: string): Generator<[value: unknown, index: number]> {
    let from = 0;
    for (let at = 0; at < text.length; at++) {
      const code = text.charCodeAt(at);
      if (this.#quoted) {
        if (this.#escaped) this.#escaped = false;
        else if (code === BACKSLASH) this.#escaped = true;
        else this.#quoted = code !== QUOTE;
      } else if (this.#depth === 0) {
        if (this.#opened(text, at)) from = at + 1;
      } else if (code === QUOTE) this.#quoted = true;
      else if (OPENS.has(code)) this.#depth += 1;
      else if (CLOSES.has(code)) {
        this.#depth -= 1;
        if (this.#depth > 0) continue;
        const last = this.#rest + text.slice(from, at);
        if (text[at] !== "]") throw this.#wrong(`${last}}`);
        if (this.#index > 0 || last.trim()) yield this.#element(last);
        [this.#rest, from, this.#over] = ["", text.length, true];
      } else if (code === COMMA && this.#depth === 1) {
        yield this.#element(this.#rest + text.slice(from, at));
        [this.#rest, from] = ["", at + 1];
      }
    }
    if (this.#depth > 0) this.#rest += text.slice(from);
  }

  end(): void {
    if (this.#over) return;
    const begun = this.#depth > 0 || this.#index > 0;
    throw invalid(
      begun
        ? `${this.#where}: the JSON array has no end: element ${this.#index} breaks off; the file is not whole${this.#index < 2 ? `; ${AS_TEXT}` : ""}`
        : `${this.#where}: there is no JSON array; give rows, such as [{"text": "…"}]`,
    );
  }

  /** Whether the array begins there; only white space may stand outside of it. */
  #opened(text: string, at: number): boolean {
    if (/\s/.test(text[at] as string)) return false;
    if (!this.#over && text[at] === "[") {
      this.#depth = 1;
      return true;
    }
    const rest = show(text.slice(at));
    throw invalid(
      this.#over
        ? `${this.#where}: after the JSON array, of ${this.#index} elements, comes ${rest}; give one array, or JSONL: an object in each line`
        : `${this.#where}: there is no JSON array, but ${rest}; give rows, such as [{"text": "…"}]`,
    );
  }

  #element(text: string): [unknown, number] {
    try {
      return [JSON.parse(text), this.#index++];
    } catch (cause) {
      throw this.#wrong(text, cause);
    }
  }

  #wrong(text: string, cause?: unknown): Error {
    const why = cause === undefined ? "" : `: ${show(cause)}`;
    return invalid(
      `${this.#where}: element ${this.#index} of the JSON array is ${text.trim() ? `not JSON, ${show(text)}` : "empty"}${why}${this.#index < 2 ? `; ${AS_TEXT}` : ""}`,
      "invalid-options",
      cause,
    );
  }
}
