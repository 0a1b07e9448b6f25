import { TinyloomError, toError } from "./error.js";
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
import { type TokenIds, toSomeTokens } from "./tokens.js";

/** Options of a {@link Dataset}. */
export interface DatasetOptions {
  /** Length of a document in tokens; default 128, or what a shorter text allows. */
  sequenceLength?: number;
  /** Share of the tokens kept for validation: the last part of the text. Default 0.1; 0: none. */
  validationFraction?: number;
  /** Seed of the order in which documents are drawn, an unsigned 32-bit number; default 0. */
  seed?: number;
}

const RULES: Rules<DatasetOptions> = {
  sequenceLength: integer(1, 0x7fff_ffff),
  validationFraction: fraction(),
  seed,
};

/**
 * Token ids cut into documents for training, with the last part kept for validation. It needs no
 * runtime and may be made before one.
 */
export class Dataset {
  readonly #json: string;
  #tokens: Uint32Array | undefined;
  #raw: RawDataset | undefined;
  #freed = false;

  private constructor(tokens: Uint32Array, options: DatasetOptions) {
    this.#tokens = tokens;
    this.#json = JSON.stringify(options);
    const module = loadedRaw();
    if (module) this._raw(module); // a wrong option shows here rather than in the first step
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
    return new Dataset(toSomeTokens("the text's token list", tokens), chosen);
  }

  /**
   * A dataset of token ids.
   *
   * @throws {@link TinyloomError} `invalid-options`, `invalid-tokens` when there is none.
   */
  static fromTokens(tokens: TokenIds, options: DatasetOptions = {}): Dataset {
    const chosen = check("Dataset.fromTokens", options, RULES);
    return new Dataset(toSomeTokens("tokens", tokens), chosen);
  }

  /** Frees the tokens' memory. Later use gives code "freed". */
  free(): void {
    this.#freed = true;
    this.#tokens = undefined;
    this.#raw?.release();
    this.#raw = undefined;
  }

  /** The raw dataset, made at its first use, when the module is there. @internal */
  _raw(module: RawModule): RawDataset {
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
