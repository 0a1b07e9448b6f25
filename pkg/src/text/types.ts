/** Options of what reads texts. */

import type { DatasetOptions, TextOptions } from "../dataset-types.js";
import type { LoadOptions, LongOptions } from "../progress.js";

/** Options of a dataset of documents. */
export interface DocumentOptions extends TextOptions, LongOptions {
  /**
   * The id that is put after each document, so that the model learns where texts end; null for none.
   * Default: the tokenizer's `endToken`, if it has one.
   */
  endToken?: number | null;
  /**
   * Whether a prompt and its completion are encoded as one text; default true. False encodes them apart, as version 0.1
   * did: many tokenizers then put a space between the two.
   */
  joined?: boolean;
}

/** A document whose beginning is given: only what comes after it is learned. */
export interface PromptedDocument {
  /** What the model reads. */
  readonly prompt: string;
  /**
   * What the model learns to write: the tokens of the whole after those that the prompt alone has too. The end token
   * after it is learned as well.
   */
  readonly completion: string;
}

/** Options of a dataset of a file, a stream or a URL. */
export interface SourceOptions extends DocumentOptions {
  /**
   * `"text"`: one text, or documents between separators. `"jsonl"`: a document per line. `"json"`: one array with a
   * document per element. `"csv"`: a document per row, below a row with the columns' names. Default: by the file's
   * bytes and its name; with a `separator` it is `"text"`.
   */
  format?: "text" | "jsonl" | "json" | "csv";
  /**
   * The column, or the field, that has the text; default `"text"`. Without it, rows with `prompt` and `completion` are
   * such documents, and JSON may have texts in the place of objects.
   */
  column?: string;
  /** What is between two columns of a CSV file; default `","`, or a tab for a name that ends in `.tsv` and for the
   * media type `text/tab-separated-values`. */
  delimiter?: string;
  /** What is between two documents of a text, such as `"\n\n"`. Without it, the text is one. */
  separator?: string;
}

/** One message of a conversation. Templates may read further fields. */
export interface Message {
  readonly role: string;
  /** The text; or its parts, or none where a message calls tools, as far as the template reads these. */
  readonly content: string | readonly unknown[] | null | undefined;
  readonly [field: string]: unknown;
}

/** A conversation: its messages, in an object if further values go to the template, such as `tools`. */
export type Conversation =
  | readonly Message[]
  | { readonly messages: readonly Message[]; readonly [name: string]: unknown };

/** How conversations become texts. */
export interface TemplateOptions {
  /**
   * The template in Jinja, or the name of one of the tokenizer's; default the tokenizer's `default`, and `tool_use` for
   * a conversation with `tools`, where the tokenizer has such a one.
   */
  template?: string;
  /**
   * Values for the template, such as `{ enable_thinking: false }`. A conversation that is an object has values of its
   * own, which come first. `tools` and `documents` are null where nobody gives them.
   */
  variables?: { readonly [name: string]: unknown };
  /**
   * What `strftime_now` of a template writes. Default in `chatPrompt`: now. In a dataset: 26 July 2024, so that the same
   * chats have the same tokens on every day.
   */
  date?: Date;
  /**
   * What special tokens in the contents of messages, of tools and documents are. `"text"`, the default: plain text, so
   * that what a user writes cannot end a turn. `"parse"`: the special tokens, as in transformers. The template's own are
   * tokens always, and so are added tokens that are not special, such as `<think>`.
   */
  specialTokens?: "text" | "parse";
}

/** Options of a dataset of conversations. */
export interface ConversationOptions extends DatasetOptions, LongOptions, TemplateOptions {
  /**
   * What is learned. `"answers"`, the default: what the assistant's messages add, and what ends them; an answer with
   * `weight: 0` is only read. What the template's prompt for an answer writes is not learned. `"all"`: every token. A
   * function says of each message whether it is learned; it may give a promise.
   */
  learn?: "answers" | "all" | ((message: Message, index: number) => boolean | Promise<boolean>);
  /**
   * Whether the beginning of a thinking block is learned too that the template's prompt already writes, such as the empty
   * one of Qwen3 under `enable_thinking: false`. Default false. What `{% generation %}` marks is learned in any case.
   */
  learnThinking?: boolean;
}

/** A conversation as the model reads it before it answers. */
export interface ChatPrompt {
  /** The conversation and the beginning of an answer, as the template renders them. */
  readonly text: string;
  /** The tokens of that text. */
  readonly tokens: Uint32Array<ArrayBuffer>;
  /**
   * The text that ends an answer, for `stop` of {@link Model.generate}: the special token that the template puts after
   * answers, or else its other text there. Empty where the template has none.
   */
  readonly stop: readonly string[];
  /** The ids that end an answer, for `stopTokens`: the special token of `stop`, and the tokenizer's `endToken`. */
  readonly stopTokens: readonly number[];
}

/** A document of a dataset. */
export interface DatasetDocument {
  readonly tokens: Uint32Array<ArrayBuffer>;
  /** One per token: 1 where the loss counts it, 0 where it is only read. The first token has nothing before it. */
  readonly learned: Uint8Array<ArrayBuffer>;
}

/** Options of `Tokenizer.fromPretrained`. */
export interface TokenizerOptions extends LoadOptions {
  /**
   * The module `@huggingface/tokenizers`, or its address. Default: the installed package, by its name. In a
   * worker without a bundler the page's import map counts, where the browser has `import.meta.resolve`.
   */
  library?: string | object;
}

/** Options of `BpeTokenizer.train`. */
export interface TrainOptions extends LongOptions {
  /** How many ids there will be, with the 256 bytes and the special tokens; fewer for a short text. */
  vocabSize: number;
  /**
   * Special tokens; the first ends texts. Default `["<|endoftext|>"]`. One that the vocabulary has anyway keeps its id.
   * One that spells another text there, as `Ġ` spells a space, is refused.
   */
  specialTokens?: readonly string[];
  /** How often a pair has to occur to become a token; default 2. */
  minFrequency?: number;
  /** Template of conversations, in Jinja, to be saved with the tokenizer. */
  chatTemplate?: string;
}

/** Files of a tokenizer, by name. */
export interface TokenizerFiles {
  readonly "tokenizer.json": Uint8Array<ArrayBuffer>;
  readonly [name: string]: Uint8Array<ArrayBuffer>;
}

/** Files of a dataset, by name. */
export interface DatasetFiles {
  readonly "dataset.json": Uint8Array<ArrayBuffer>;
  readonly "tokens.bin": Uint8Array<ArrayBuffer>;
  readonly [name: string]: Uint8Array<ArrayBuffer>;
}
