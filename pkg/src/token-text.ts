/** The text of tokens as they are drawn, up to the first stop string. */

import type { Until } from "./caller-functions.js";
import { given } from "./caller-functions.js";
import { isTinyloomError } from "./error.js";
import type { GeneratedToken } from "./generate-types.js";
import { invalid, show } from "./options.js";
import type { TextDecoding, TokenDecoder } from "./tokenizer-types.js";

type Tokens = AsyncGenerator<GeneratedToken, void, undefined>;

/** Gives each token with the text that it completes, and ends the text before the first stop string. */
export function withText(tokenizer: TextDecoding, asked: TextAsked, until: Until) {
  return async function* (tokens: Tokens): Tokens {
    const text = await textOf(tokenizer, asked, until);
    for await (const drawn of tokens) {
      yield* text.push(drawn);
      if (text.stopped) return;
    }
    yield* text.end();
  };
}

/** What is asked of a text. */
export interface TextAsked {
  /** Strings that are not empty; the text ends before the first. */
  readonly stop: readonly string[] | undefined;
  readonly skipSpecialTokens?: boolean;
  /** The tokens that the text goes on from; without them it stands by itself. */
  readonly after?: Uint32Array | undefined;
  /** Tokens after those whose text the first drawn tokens spell again: it is not given out. */
  readonly again?: Uint32Array | undefined;
}

/** The text of one text's tokens as they are drawn. */
export interface TextOf {
  /** A stop string has ended it. */
  readonly stopped: boolean;
  /** The tokens that are decided with this one. */
  push(drawn: GeneratedToken): Iterable<GeneratedToken>;
  /** Those that are left when no token comes any more. */
  end(): Iterable<GeneratedToken>;
}

/** What {@link withText} does, token by token. */
export async function textOf(
  tokenizer: TextDecoding,
  { stop = [], skipSpecialTokens = false, ...from }: TextAsked,
  until: Until,
): Promise<TextOf> {
  const make = (skip: boolean) => decoderAfter(from, () => decoderOf(tokenizer, skip, until));
  const shown = await make(skipSpecialTokens);
  // A stop string may be a special token's text, which is searched and never shown.
  const searched = skipSpecialTokens && stop.length > 0 ? await make(false) : shown;
  const both = (work: (decoder: TokenDecoder) => string): [string, string] => {
    const text = decodedText(() => work(searched));
    return [text, searched === shown ? text : decodedText(() => work(shown))];
  };
  const waiting = new Waiting(stop);
  return {
    get stopped() {
      return waiting.stopped;
    },
    push(drawn) {
      waiting.add(drawn, ...both((decoder) => decoder.push(drawn.token)));
      if (waiting.stoppedLate) waiting.late(decodedText(() => shown.end()));
      return waiting.decided();
    },
    end() {
      waiting.finish(...both((decoder) => decoder.end()));
      return waiting.decided();
    },
  };
}

/** A decoder that goes on after some tokens: a space is cut at the beginning of a text, and not within it. */
async function decoderAfter(
  { after, again = new Uint32Array() }: Pick<TextAsked, "after" | "again">,
  make: () => Promise<TokenDecoder>,
): Promise<TokenDecoder> {
  const decoder = await make();
  if (!after) return decoder;
  const pushed = (by: TokenDecoder, ids: Uint32Array) =>
    Array.from(ids, (id) => decodedText(() => by.push(id))).join("");
  const other = await make();
  const whole = pushed(other, after) + pushed(other, again) + decodedText(() => other.end());
  // What is held back of it, or spelled again, comes with later tokens. Of a character that is cut off nothing was given.
  let drop = whole.replace(/\ufffd+$/, "").length - pushed(decoder, after).length;
  const rest = (text: string) => {
    const cut = text.slice(Math.max(drop, 0));
    drop -= text.length - cut.length;
    return cut;
  };
  return { push: (id) => rest(decoder.push(id)), end: () => rest(decoder.end()) };
}

/** A token that is not given out yet. */
interface Waited {
  readonly drawn: GeneratedToken;
  /** Its text, special tokens too. */
  text: string;
  /** Its text without what is left out. */
  shown: string;
  /** Whether shown text before it is still to come. */
  late: boolean;
}

/** Tokens that are not given out yet, with their text. */
class Waiting {
  stopped = false;
  #ended = false;
  #text = "";
  /** Whether the last token gave no text: a part of a character, or a byte that others may follow. */
  #held = false;
  readonly #tokens: Waited[] = [];
  readonly #stop: readonly string[];

  constructor(stop: readonly string[]) {
    this.#stop = stop;
  }

  /** @param shown - the text without what is left out of it. */
  add(drawn: GeneratedToken, text: string, shown: string): void {
    // The special token ends what was held in the whole text, and not in the shown text, which has no such token.
    const late = this.#held && text !== "" && shown === "";
    this.#tokens.push({ drawn, text, shown, late });
    this.#held = text === "";
    this.#text += text;
    if (shown !== "") this.late("");
  }

  /** Whether a stop string is there, and shown text before it is not. */
  get stoppedLate(): boolean {
    return this.#tokens.some(({ late }) => late) && this.#found() !== undefined;
  }

  /**
   * Gives late text to the tokens that it belongs to: each takes what its whole text begins with.
   *
   * @param rest - what the decoder of the shown text still held.
   */
  late(rest: string): void {
    const from = this.#tokens.findIndex(({ late }) => late);
    if (from < 0) return;
    const tokens = this.#tokens.slice(from);
    let all = tokens.map(({ shown }) => shown).join("") + rest;
    for (const token of tokens) {
      let length = Math.min(token.text.length, all.length);
      while (!all.startsWith(token.text.slice(0, length))) length--;
      [token.shown, all, token.late] = [all.slice(0, length), all.slice(length), false];
    }
    const last = tokens.at(-1) as Waited;
    last.shown += all;
  }

  /** Where the first stop string begins. */
  #found(): number | undefined {
    const found = this.#stop.map((stop) => this.#text.indexOf(stop)).filter((at) => at >= 0);
    return found.length > 0 ? Math.min(...found) : undefined;
  }

  /** No token comes any more; `rest` belongs to the last one, if that waits. */
  finish(rest: string, shown: string): void {
    this.#ended = true;
    const last = this.#tokens.at(-1);
    if (!last) return;
    last.text += rest;
    last.shown += shown;
    this.#text += rest;
    this.late("");
  }

  /** Takes out the tokens whose text is decided: what no later token can make part of a stop string. */
  *decided(): Generator<GeneratedToken, void, undefined> {
    const found = this.#found();
    this.stopped = found !== undefined;
    const end = found ?? this.#text.length - this.#undecided();
    let at = 0;
    for (const { drawn, text, shown } of this.#tokens.splice(0, this.#decidedCount(end))) {
      yield { ...drawn, text: shown.slice(0, Math.max(0, end - at)) };
      at += text.length;
    }
    this.#text = this.#text.slice(at);
  }

  /** Tokens before that place in the text. One without text has a part of the next character: it waits. */
  #decidedCount(end: number): number {
    if (this.#ended && !this.stopped) return this.#tokens.length;
    let [at, count] = [0, 0];
    for (const [index, { text, late }] of this.#tokens.entries()) {
      const { length } = text;
      if (late && !this.stopped) break;
      if (this.stopped ? at >= end : at + length > end) break;
      at += length;
      if (length > 0) count = index + 1;
    }
    return count;
  }

  /** Characters at the end of the text with which a stop string may begin. */
  #undecided(): number {
    if (this.#ended) return 0;
    const lengths = this.#stop.map((stop) => {
      let length = Math.min(stop.length - 1, this.#text.length);
      while (!this.#text.endsWith(stop.slice(0, length))) length--;
      return length;
    });
    return lengths.reduce((most, length) => Math.max(most, length), 0);
  }
}

async function decoderOf(
  tokenizer: TextDecoding,
  skipSpecialTokens: boolean,
  until: Until,
): Promise<TokenDecoder> {
  const options = { skipSpecialTokens };
  const decoder = await given("the tokenizer's decoder", () => tokenizer.decoder(options), until);
  if (typeof decoder?.push === "function" && typeof decoder.end === "function") return decoder;
  throw invalid(
    `tokenizer.decoder() gave ${show(decoder)}; give a tokenizer whose decoder has push() and end()`,
  );
}

/** The text that a decoder gives. */
function decodedText(work: () => unknown): string {
  const text = decoded(work);
  if (typeof text === "string") return text;
  throw invalid(
    `generate: the tokenizer's decoder gave ${show(text)}; push() and end() have to give strings, at once and not ` +
      "as promises",
  );
}

/** What a tokenizer's decoder gives; what another than tinyloom's own throws gets a code. */
function decoded<T>(work: () => T): T {
  try {
    return work();
  } catch (cause) {
    if (isTinyloomError(cause)) throw cause;
    throw invalid(`generate: the tokenizer's decoder threw ${show(cause)}`, undefined, cause);
  }
}
