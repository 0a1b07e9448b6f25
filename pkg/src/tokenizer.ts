import { TinyloomError } from "./error.js";
import { invalid, show } from "./options.js";
import { asTokens, type TokenIds } from "./tokens.js";

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
 * One token per byte of UTF-8. It needs no vocabulary file and encodes every text.
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
    if (typeof text !== "string" && !(text instanceof Uint8Array)) {
      throw invalid(`ByteTokenizer.encode takes a string or a Uint8Array, not ${show(text)}`);
    }
    return Uint32Array.from(typeof text === "string" ? new TextEncoder().encode(text) : text);
  }

  /** The text of the bytes; a sequence that is not UTF-8 becomes U+FFFD. */
  decode(tokens: TokenIds): string {
    return newDecoder().decode(toBytes(tokens));
  }

  /**
   * Decodes ids as they arrive. A character of several bytes appears with its last byte.
   *
   * @example
   * ```ts
   * const decoder = tokenizer.decoder();
   * for await (const { token } of model.generate(prompt)) output.append(decoder.push(token));
   * output.append(decoder.end());
   * ```
   */
  decoder(): TokenDecoder {
    const decoder = newDecoder();
    return {
      push: (token) => decoder.decode(toBytes([token]), { stream: true }),
      end: () => decoder.decode(),
    };
  }
}

/** Turns a stream of ids into text; see {@link ByteTokenizer.decoder}. */
export interface TokenDecoder {
  /** The text that one more id completes; often empty. */
  push(token: number): string;
  /** The rest at the end: U+FFFD for a character that was cut off, otherwise nothing. */
  end(): string;
}

/** A decoder that keeps a byte-order mark: it is a character of the text like any other. */
const newDecoder = () => new TextDecoder("utf-8", { ignoreBOM: true });

function toBytes(tokens: TokenIds): Uint8Array<ArrayBuffer> {
  const ids = asTokens("tokens", tokens);
  const wrong = ids.find((id) => id > 255);
  if (wrong !== undefined) {
    throw new TinyloomError("invalid-tokens", `token ${wrong} is no byte; ids run from 0 to 255`);
  }
  return Uint8Array.from(ids);
}
