import { TinyloomError } from "./error.js";
import type { CheckpointSource } from "./file-part.js";
import { expectMade } from "./inner.js";
import { tokenizersPart } from "./lazy.js";
import { invalid, isA, show } from "./options.js";
import type { TextSource } from "./text/read.js";
import { decodesSpecial, parsesSpecial } from "./text/special.js";
import type {
  ChatPrompt,
  Conversation,
  TemplateOptions,
  TokenizerFiles,
  TokenizerOptions,
  TrainOptions,
} from "./text/types.js";
import type {
  DecodeOptions,
  EncodeOptions,
  SpecialTokens,
  TextDecoding,
  TextEncoding,
  TokenDecoder,
} from "./tokenizer-types.js";
import { asTokens, type TokenIds, toTokens } from "./tokens.js";

/** Turns text into token ids and back. */
export abstract class Tokenizer implements TextEncoding, TextDecoding {
  /** How many ids there are; ids run from 0 to `vocabSize - 1`. */
  abstract readonly vocabSize: number;

  /** For classes of your own; {@link Tokenizer.fromPretrained} gives the tokenizer of a checkpoint. */
  constructor() {
    if (new.target === Tokenizer || (new.target as unknown) === BpeTokenizer)
      expectMade(0, "Tokenizer", "await Tokenizer.fromPretrained(…) or BpeTokenizer.train(…)");
  }

  /** The ids of a text. */
  abstract encode(text: string, options?: EncodeOptions): Uint32Array;
  /** The text of some ids. */
  abstract decode(tokens: TokenIds, options?: DecodeOptions): string;
  /**
   * Decodes ids as they arrive. A character of several tokens appears with its last one. Where single bytes are
   * tokens of their own, as in Llama 2 and Gemma, it appears with the token after them: a byte may still make the
   * whole run no text. What is given out in all is the text of {@link Tokenizer.decode}.
   *
   * @example
   * ```ts
   * const decoder = tokenizer.decoder();
   * for await (const { token } of model.generate(prompt)) output.append(decoder.push(token));
   * output.append(decoder.end());
   * ```
   */
  abstract decoder(options?: DecodeOptions): TokenDecoder;

  /**
   * The tokenizer of a checkpoint: its `tokenizer.json`, `vocab.json` and `merges.txt`, or its GGUF file. Special tokens and
   * templates come from `tokenizer_config.json`, `special_tokens_map.json`, `chat_template.jinja` and
   * `chat_template.json`, where they are there. What tinyloom's own {@link BpeTokenizer} cannot read is
   * read by the package `@huggingface/tokenizers`, which then has to be installed.
   *
   * @param source - a base URL, or the files by name, as {@link Model.fromPretrained} takes them.
   * @throws {@link TinyloomError} `invalid-checkpoint`, `module-unavailable` without that package, `aborted`.
   */
  static async fromPretrained(
    source: CheckpointSource,
    options: TokenizerOptions = {},
  ): Promise<PretrainedTokenizer> {
    return (await tokenizersPart()).loadTokenizer(source, options);
  }
}

/** A tokenizer that has files. */
export interface PretrainedTokenizer extends Tokenizer {
  /** The id that ends a text; undefined where the tokenizer names none. */
  readonly endToken: number | undefined;
  /** The ids that `encode` puts before every text unless `addSpecialTokens` is false; often that of `bos`, or none. */
  readonly startTokens: readonly number[];
  /** The special tokens by their names in transformers, without `_token`. */
  readonly specialTokens: SpecialTokens;
  /** The template of conversations, in Jinja; undefined where there is none. */
  readonly chatTemplate: string | undefined;
  /** All templates of conversations by name; {@link PretrainedTokenizer.chatTemplate} is `default`. */
  readonly chatTemplates: { readonly [name: string]: string };
  /** The files that transformers loads, such as `tokenizer.json`. */
  save(): TokenizerFiles;
}

/**
 * Byte-level byte-pair encoding, as GPT-2 has it: frequent sequences of bytes are one token each. It
 * encodes every text.
 *
 * @example
 * ```ts
 * const tokenizer = await BpeTokenizer.train(file, { vocabSize: 4096 });
 * const dataset = await Dataset.from(file, tokenizer);
 * const { "tokenizer.json": bytes } = tokenizer.save(); // transformers loads it
 * ```
 */
export abstract class BpeTokenizer extends Tokenizer implements PretrainedTokenizer {
  abstract readonly endToken: number;
  abstract readonly startTokens: readonly number[];
  abstract readonly specialTokens: SpecialTokens;
  abstract readonly chatTemplate: string | undefined;
  abstract readonly chatTemplates: { readonly [name: string]: string };
  abstract save(): TokenizerFiles;

  /**
   * Learns the pairs of a text that occur most often. It runs in a worker of its own, or, where a page's
   * policy forbids that, in short pieces between the page's own work.
   *
   * @param text - a string, or what {@link Dataset.from} reads; also an array of these.
   * @throws {@link TinyloomError} `invalid-options`, `aborted`.
   */
  static async train(
    text: string | TextSource | readonly (string | TextSource)[],
    options: TrainOptions,
  ): Promise<BpeTokenizer> {
    return (await tokenizersPart()).train(text, options);
  }
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
export class ByteTokenizer extends Tokenizer {
  /** 256, one for each byte. */
  readonly vocabSize = 256;

  /** The bytes of the text in UTF-8, or the given bytes themselves, as ids from 0 to 255. */
  encode(text: string | Uint8Array, options?: EncodeOptions): Uint32Array {
    void parsesSpecial(options); // there are no special tokens, and wrong options are refused
    if (typeof text === "string") return new Uint32Array(new TextEncoder().encode(text));
    if (ArrayBuffer.isView(text) && isA(text, Uint8Array)) return toTokens("the text", text);
    throw invalid(`ByteTokenizer.encode takes a string or a Uint8Array, not ${show(text)}`);
  }

  /** The text of the bytes; a sequence that is not UTF-8 becomes U+FFFD. */
  decode(tokens: TokenIds, options?: DecodeOptions): string {
    void decodesSpecial(options);
    return newDecoder().decode(toBytes(tokens));
  }

  decoder(options?: DecodeOptions): TokenDecoder {
    void decodesSpecial(options);
    const decoder = newDecoder();
    return {
      push: (token) => decoder.decode(toBytes([token]), { stream: true }),
      end: () => decoder.decode(),
    };
  }
}

/**
 * What a model reads before it answers a conversation: the messages and the beginning of an answer, as the chat
 * template renders them. The text is that of transformers; a template that has what is not known here is refused.
 *
 * @param conversation - the messages so far, or an object that has them and further values for the template.
 * @throws {@link TinyloomError} `invalid-options`, in the words of a template that refuses the conversation.
 *
 * @example
 * ```ts
 * const { tokens, stop } = await chatPrompt([{ role: "user", content: "hello" }], tokenizer); // also stopTokens
 * for await (const { text } of model.generate(tokens, { tokenizer, stop })) output.append(text);
 * ```
 */
export async function chatPrompt(
  conversation: Conversation,
  tokenizer: TextEncoding,
  options: TemplateOptions = {},
): Promise<ChatPrompt> {
  return (await tokenizersPart()).chatPrompt(conversation, tokenizer, options);
}

/** A decoder that keeps a byte-order mark: it is a character of the text like any other. */
export const newDecoder = () => new TextDecoder("utf-8", { ignoreBOM: true });

function toBytes(tokens: TokenIds): Uint8Array<ArrayBuffer> {
  const ids = asTokens("tokens", tokens);
  const wrong = ids.find((id) => id > 255);
  if (wrong !== undefined) {
    throw new TinyloomError("invalid-tokens", `token ${wrong} is no byte; ids run from 0 to 255`);
  }
  return Uint8Array.from(ids);
}
