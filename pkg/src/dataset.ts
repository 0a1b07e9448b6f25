import { TinyloomError, toError } from "./error.js";
import { end } from "./handle.js";
import { datasets } from "./internal.js";
import {
  called,
  check,
  fraction,
  inspect,
  integer,
  invalid,
  isA,
  type Rules,
  seed,
  show,
} from "./options.js";
import { expectRoom, loadedRaw, type RawDataset, type RawModule } from "./raw.js";
import { ByteTokenizer, type Tokenizer } from "./tokenizer.js";
import { asTokens, some, type TokenIds } from "./tokens.js";

/** Options of a {@link Dataset}. */
export interface DatasetOptions {
  /**
   * Tokens per document; default 128, or fewer for a shorter text or a smaller `tokensPerStep`. A trainer
   * refuses a dataset whose length is given here and exceeds its `tokensPerStep`.
   */
  sequenceLength?: number;
  /** Share of the tokens kept for validation: the last part of the text. Default 0.1; 0 keeps none. */
  validationFraction?: number;
  /** Seed of the order in which documents are drawn, an unsigned 32-bit number; default 0. */
  seed?: number;
}

const RULES: Rules<DatasetOptions> = {
  sequenceLength: integer(1, 0x7fff_ffff),
  validationFraction: fraction(),
  seed,
};

/** `sequenceLength` where the caller gives none and the text is long enough. */
const SEQUENCE_LENGTH = 128;

/**
 * Token ids for training, with the last part kept for validation. It needs no runtime and may be made
 * before one.
 *
 * Each step draws documents: windows of `sequenceLength` tokens from random places of the training
 * split. Where `tokensPerStep` is no multiple of that, a shorter window fills the rest of the step.
 */
export class Dataset {
  /** Tokens in all, of both splits. */
  readonly tokens: number;
  /** Tokens of the validation split. */
  readonly validationTokens: number;
  /** Length of a document in tokens. */
  readonly sequenceLength: number;
  /** How many documents lie end to end in the training split. */
  readonly documents: number;
  readonly #json: string;
  #tokens: Uint32Array | undefined;
  #raw: RawDataset | undefined;
  #freed = false;

  /** @param own - whether the array is nobody else's. */
  private constructor(tokens: Uint32Array, own: boolean, options: DatasetOptions) {
    const { validationFraction = 0.1 } = options;
    this.tokens = tokens.length;
    this.validationTokens = Math.trunc(tokens.length * validationFraction);
    const train = this.tokens - this.validationTokens;
    this.sequenceLength =
      options.sequenceLength ?? Math.min(SEQUENCE_LENGTH, Math.max(train, 2) - 1);
    // The target of a document's last token is the token that follows it.
    this.documents = Math.max(0, Math.floor((train - 1) / this.sequenceLength));
    this.#json = JSON.stringify(options);
    const module = loadedRaw();
    this.#tokens = module || own ? tokens : tokens.slice();
    datasets.set(this, { raw: (loaded) => this.#made(loaded) });
    if (module) this.#made(module); // a wrong option shows here rather than in the first step
  }

  /**
   * A dataset of a text.
   *
   * @param text - the text, or a Blob or File of it; with a {@link ByteTokenizer} a Blob's bytes are
   * taken as they are.
   * @throws {@link TinyloomError} `invalid-options`, `invalid-tokens` when the text is empty.
   */
  static async fromText(
    text: string | Blob,
    tokenizer: Tokenizer,
    options: DatasetOptions = {},
  ): Promise<Dataset> {
    const chosen = check("Dataset.fromText", options, RULES);
    if (typeof text !== "string" && !isA(text, Blob)) {
      throw invalid(`Dataset.fromText takes a string or a Blob, not ${show(text)}`);
    }
    if (inspect("Dataset.fromText", () => typeof tokenizer?.encode !== "function")) {
      throw invalid(`Dataset.fromText takes a tokenizer, not ${show(tokenizer)}`);
    }
    const bytes = isA(tokenizer, ByteTokenizer);
    let read: string | Uint8Array = "";
    try {
      if (typeof text === "string") read = text;
      else read = bytes ? new Uint8Array(await text.arrayBuffer()) : await text.text();
    } catch (cause) {
      const message = `Dataset.fromText: the Blob could not be read: ${show(cause)}`;
      throw invalid(message, "invalid-options", cause);
    }
    const tokens = called("the tokenizer's encode", () =>
      bytes ? tokenizer.encode(read) : tokenizer.encode(read as string),
    );
    const ids = some("the text's token list", asTokens("the text's token list", tokens));
    return new Dataset(ids, bytes || ids !== tokens, chosen);
  }

  /**
   * A dataset of token ids.
   *
   * @throws {@link TinyloomError} `invalid-options`, `invalid-tokens` when there is none.
   */
  static fromTokens(tokens: TokenIds, options: DatasetOptions = {}): Dataset {
    const chosen = check("Dataset.fromTokens", options, RULES);
    const ids = some("tokens", asTokens("tokens", tokens));
    return new Dataset(ids, ids !== tokens, chosen);
  }

  /**
   * Steps of an epoch. Documents are drawn at random places, so an epoch is as many steps as draw as
   * many tokens as the training split has; some of them are drawn several times and some never.
   *
   * @param tokensPerStep - the trainer's; with accumulation, times its `gradientAccumulation`.
   * @throws {@link TinyloomError} `invalid-options`.
   */
  stepsPerEpoch(tokensPerStep: number): number {
    const allowed = integer(1)(tokensPerStep);
    if (allowed) {
      throw invalid(`stepsPerEpoch: tokensPerStep is ${show(tokensPerStep)}; give ${allowed}`);
    }
    return Math.ceil((this.tokens - this.validationTokens) / tokensPerStep);
  }

  /** Frees the tokens' memory. Later use gives code "freed". */
  free(): void {
    this.#freed = true;
    this.#tokens = undefined;
    if (this.#raw) end(this.#raw);
    this.#raw = undefined;
  }

  #made(module: RawModule): RawDataset {
    if (this.#freed) {
      throw new TinyloomError("freed", "this Dataset was freed; create it again to use it");
    }
    if (this.#raw === undefined) {
      const tokens = this.#tokens as Uint32Array;
      expectRoom(module, `a dataset of ${tokens.length} tokens`, tokens.byteLength);
      try {
        this.#raw = new module.RawDataset(tokens, this.#json);
      } catch (error) {
        throw toError(error);
      }
      this.#tokens = undefined; // the module has its own copy
    }
    return this.#raw;
  }
}
