import { Data } from "./data.js";
import {
  encoded,
  expectTokenizer,
  type Prepared,
  startOf,
  TEXT,
  withStart,
} from "./dataset-options.js";
import type { DatasetOptions, TextOptions } from "./dataset-types.js";
import type { CheckpointFiles, PickedFiles } from "./file-part.js";
import { expectMade, MADE } from "./inner.js";
import { datasets } from "./internal.js";
import { textPart, tokenizersPart, told } from "./lazy.js";
import { check, integer, invalid, isA, show } from "./options.js";
import type { LongOptions } from "./progress.js";
import type { TextSource } from "./text/read.js";
import { type Packed, TokenStore } from "./text/store.js";
import type {
  Conversation,
  ConversationOptions,
  DatasetDocument,
  DatasetFiles,
  DocumentOptions,
  PromptedDocument,
  SourceOptions,
  TokenizerOptions,
} from "./text/types.js";
import type { TextEncoding } from "./tokenizer-types.js";
import { asTokens, some, type TokenIds } from "./tokens.js";
import { loadedRaw } from "./wasm-instance.js";

/** `sequenceLength` where the caller gives none and the text, or a document, is long enough. */
const [SEQUENCE_LENGTH, DOCUMENT_LENGTH] = [128, 1024];

/**
 * Token ids for training, with the last part kept for validation. It needs no runtime and may be made
 * before one. Tokens take one, two or four bytes each, as their values need.
 *
 * Of one text, each step draws windows of `sequenceLength` tokens from random places of the training
 * split. Where `tokensPerStep` is no multiple of that, a shorter window fills the rest of the step. Of
 * documents, each step packs as many whole ones as fit, in a shuffled order without replacement.
 */
export class Dataset {
  /** Tokens in all, of both splits. */
  readonly tokens: number;
  /** Tokens of the validation split. */
  readonly validationTokens: number;
  /** Length of a document in tokens; of packed documents that of the longest piece: a longer document is cut into these. */
  readonly sequenceLength: number;
  /** How many documents the training split has; of one text, how many lie end to end in it. */
  readonly documents: number;
  /**
   * A hash of the tokens, of where documents begin and of what is learned: sixteen hexadecimal digits. It
   * tells other data from the same, and is no protection against those who want to deceive.
   */
  readonly hash: string;
  /** The tokenizer that made it; undefined for a dataset of token ids. */
  readonly tokenizer: TextEncoding | undefined;
  /** What `save` keeps beside the tokens. */
  readonly #saved: Pick<Prepared, "options" | "chats">;
  readonly #packed: Packed | undefined;
  readonly #data: Data;

  private constructor(made: typeof MADE, parts: Prepared) {
    expectMade(made, "Dataset", "await Dataset.fromText(…)");
    const { store, options, tokenizer, chats = false, before = [] } = parts;
    const { validationFraction = 0.1, sequenceLength, seed } = options;
    const { packed, length: tokens } = store;
    let train = tokens - Math.trunc(tokens * validationFraction);
    const documents = packed?.trained(validationFraction);
    if (documents !== undefined) train = packed?.starts[documents] ?? tokens;
    const [most, longest] = packed
      ? [chats ? packed.longest : DOCUMENT_LENGTH, packed.longest]
      : [SEQUENCE_LENGTH, train - 1];
    this.tokens = tokens;
    this.validationTokens = tokens - train;
    this.sequenceLength = sequenceLength ?? Math.min(most, Math.max(longest, 1));
    // The target of a document's last token is the token that follows it.
    this.documents = documents ?? Math.max(0, Math.floor((train - 1) / this.sequenceLength));
    const chosen = { sequenceLength, validationFraction, seed } as DatasetOptions;
    this.#saved = { options: chosen, chats };
    this.tokenizer = tokenizer;
    this.#packed = packed;
    const draws = { sequenceLength: this.sequenceLength, validationFraction, seed: seed ?? 0 };
    const whole = chats && sequenceLength === undefined;
    this.#data = datasets.set(this, new Data({ store, options: chosen, draws, whole, before }));
    this.hash = this.#data.hash;
    const module = loadedRaw();
    if (module) this.#data.raw(module); // a wrong option shows here rather than in the first step
  }

  /**
   * A dataset of a text.
   *
   * @param text - the text, or a Blob or File of it, whatever form it seems to have; with a
   * {@link ByteTokenizer} a Blob's bytes are taken as they are.
   * @throws {@link TinyloomError} `invalid-options`, `invalid-tokens` when the text is empty.
   */
  static async fromText(
    text: string | Blob,
    tokenizer: TextEncoding,
    options: TextOptions = {},
  ): Promise<Dataset> {
    const { startTokens, ...chosen } = await told(() => check("Dataset.fromText", options, TEXT));
    const encoding = expectTokenizer("Dataset.fromText", tokenizer);
    if (typeof text !== "string") {
      if (!isA(text, Blob))
        throw invalid(`Dataset.fromText takes a string or a Blob, not ${show(text)}`);
      return Dataset.#of(
        textPart().then((part) => part.fromSource("Dataset.fromText", text, encoding, options)),
      );
    }
    const store = stored(some("the text", await encoded(encoding, text)));
    return new Dataset(
      MADE,
      withStart(store, await startOf(encoding, startTokens), chosen, encoding),
    );
  }

  /**
   * A dataset of token ids.
   *
   * @param options - `startTokens` are ids here; by default there are none.
   * @throws {@link TinyloomError} `invalid-options`, `invalid-tokens` when there is none.
   */
  static fromTokens(tokens: TokenIds, options: TextOptions = {}): Dataset {
    const { startTokens = false, ...chosen } = check("Dataset.fromTokens", options, TEXT);
    if (startTokens === true) {
      throw invalid("Dataset.fromTokens has no tokenizer: give the ids of startTokens, not true");
    }
    const store = stored(some("tokens", asTokens("tokens", tokens)));
    return new Dataset(MADE, withStart(store, startTokens ? Array.from(startTokens) : [], chosen));
  }

  /**
   * A dataset of a file, a stream or a URL, read piece by piece. JSONL and CSV give a document per row.
   *
   * @param source - a File, a Blob, a ReadableStream of bytes or strings, or a URL.
   * @throws {@link TinyloomError} `invalid-options`, also for what cannot be read; `invalid-tokens`,
   * `aborted`.
   */
  static from(
    source: TextSource,
    tokenizer: TextEncoding,
    options: SourceOptions = {},
  ): Promise<Dataset> {
    return Dataset.#of(
      textPart().then((part) => part.fromSource("Dataset.from", source, tokenizer, options)),
    );
  }

  /**
   * A dataset of documents: attention does not cross them, and none is predicted from another.
   *
   * @param documents - an array or an async generator of texts, or of prompts with completions. Of a
   * prompt with a completion, only the completion is learned.
   * @throws {@link TinyloomError} as {@link Dataset.from}.
   */
  static fromDocuments(
    documents: Iterable<string | PromptedDocument> | AsyncIterable<string | PromptedDocument>,
    tokenizer: TextEncoding,
    options: DocumentOptions = {},
  ): Promise<Dataset> {
    return Dataset.#of(
      textPart().then((part) => part.fromDocuments(documents, tokenizer, options)),
    );
  }

  /**
   * A dataset of conversations. Each is rendered by a chat template and is one document; by default only
   * the assistant's answers are learned.
   *
   * @param list - an array of conversations, or a file, a stream or a URL: JSONL with one in each line, or a JSON array.
   * @throws {@link TinyloomError} as {@link Dataset.from}; in the words of a template that refuses a conversation.
   */
  static fromConversations(
    list: readonly Conversation[] | TextSource,
    tokenizer: TextEncoding,
    options: ConversationOptions = {},
  ): Promise<Dataset> {
    return Dataset.#of(
      tokenizersPart().then((part) => part.fromConversations(list, tokenizer, options)),
    );
  }

  /**
   * The dataset that {@link Dataset.save} gave, with its tokenizer.
   *
   * @param source - the files by name or as a page's picker gives them, or a base URL.
   * @throws {@link TinyloomError} `invalid-checkpoint`, also where the data have another hash.
   */
  static load(
    source: string | URL | CheckpointFiles | PickedFiles,
    options: TokenizerOptions = {},
  ): Promise<Dataset> {
    return Dataset.#of(textPart().then((part) => part.loadDataset(source, options)));
  }

  static async #of(prepared: Promise<Prepared>): Promise<Dataset> {
    return new Dataset(MADE, await prepared);
  }

  /**
   * Steps of an epoch. Windows of one text are drawn at random places, so an epoch is as many steps as
   * draw as many tokens as the training split has; some of them are drawn several times and some never.
   * Packed documents are drawn once each in an epoch; the number is that of their order in the data, and
   * shuffled orders take a few steps more or fewer.
   *
   * @param tokensPerStep - the trainer's; with accumulation, times its `gradientAccumulation`.
   * @throws {@link TinyloomError} `invalid-options`.
   */
  stepsPerEpoch(tokensPerStep: number): number {
    const allowed = integer(1)(tokensPerStep);
    if (allowed) {
      throw invalid(`stepsPerEpoch: tokensPerStep is ${show(tokensPerStep)}; give ${allowed}`);
    }
    return (
      this.#packed?.steps(this.documents, this.sequenceLength, tokensPerStep) ??
      Math.ceil((this.tokens - this.validationTokens) / tokensPerStep)
    );
  }

  /**
   * A document: its tokens, and which of them the loss counts. It is whole, also where it is longer than
   * `sequenceLength`: a trainer sees the pieces. One text is cut into documents that lie end to end.
   *
   * @param index - from 0. Those of the training split come first. `documents` counts these, and those for
   * validation come after these.
   * @throws {@link TinyloomError} `invalid-options`, `freed`.
   */
  async document(index: number): Promise<DatasetDocument> {
    const store = this.#data.store();
    return (await textPart()).documentOf(store, this.sequenceLength, index);
  }

  /**
   * The files of the dataset: `dataset.json` with its options and hash, `tokens.bin`, and those of its
   * tokenizer.
   *
   * @throws {@link TinyloomError} `freed`, `aborted`.
   */
  async save(options: LongOptions = {}): Promise<DatasetFiles> {
    const store = this.#data.store();
    return (await textPart()).saveDataset(store, this, this.#saved, options);
  }

  /**
   * Frees the tokens' memory. Later calls give code "freed". Calls and runs that began before go on to their end,
   * and a lost device has their steps repeated: the memory is given back when nothing of this needs it any more.
   */
  free(): void {
    this.#data.free();
  }
}

/** The memory of a dataset that is not freed, for a new call. @internal */
export function dataOf(dataset: Dataset): Data {
  if (!isA(dataset, Dataset)) {
    throw invalid(`give a Dataset, not ${show(dataset)}; Dataset.fromText makes one`);
  }
  const data = datasets.of(dataset);
  void data.store();
  return data;
}

function stored(ids: Uint32Array): TokenStore {
  const store = new TokenStore();
  store.append(ids);
  return store.end();
}
