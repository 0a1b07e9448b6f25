import { TinyloomError } from "./error.js";
import { type TokenIds, toTokens } from "./tokens.js";

/** Turns text into token ids and back. */
export interface Tokenizer {
  /** How many ids there are; ids run from 0 to `vocabSize - 1`. */
  readonly vocabSize: number;
  /** The ids of a text. */
  encode(text: string): Uint32Array;
  /** The text of some ids. */
  decode(tokens: TokenIds): string;
}

/**
 * One token for each byte of UTF-8: needs no vocabulary file and knows every text.
 *
 * @example
 * ```ts
 * const tokenizer = new ByteTokenizer();
 * tokenizer.decode(tokenizer.encode("héllo")); // "héllo"
 * ```
 */
export class ByteTokenizer implements Tokenizer {
  /** 256, one for each byte. */
  readonly vocabSize = 256;

  /** The bytes of the text in UTF-8, or the given bytes themselves, as ids from 0 to 255. */
  encode(text: string | Uint8Array): Uint32Array {
    return Uint32Array.from(typeof text === "string" ? new TextEncoder().encode(text) : text);
  }

  /** The text of the bytes; a sequence that is not UTF-8 becomes U+FFFD. */
  decode(tokens: TokenIds): string {
    const ids = toTokens("tokens", tokens);
    const wrong = ids.find((id) => id > 255);
    if (wrong !== undefined) {
      throw new TinyloomError("invalid-tokens", `token ${wrong} is no byte; ids run from 0 to 255`);
    }
    return new TextDecoder().decode(Uint8Array.from(ids));
  }
}
