/** Tokenizers of Hugging Face that tinyloom's own BPE is not. */

import { TinyloomError } from "../error.js";
import { inspect, invalid, show } from "../options.js";
import { type PretrainedTokenizer, Tokenizer } from "../tokenizer.js";
import type {
  DecodeOptions,
  EncodeOptions,
  SpecialTokens,
  TokenDecoder,
} from "../tokenizer-types.js";
import { asTokens, type TokenIds } from "../tokens.js";
import { AddedTokens, type Section } from "./added.js";
import type { Around } from "./around.js";
import type { Stage } from "./decoders.js";
import { decodesSpecial, parsesSpecial } from "./special.js";
import { spells } from "./spelling.js";
import type { TokenizerInfo } from "./tokenizer-info.js";
import type { AddedToken } from "./tokenizer-json.js";
import { copied } from "./trained.js";
import type { TokenizerFiles } from "./types.js";

/** What `@huggingface/tokenizers` offers, as far as it is used. */
export interface PeerTokenizer {
  readonly normalizer: { normalize(text: string): string } | null;
  encode(
    text: string,
    options: { add_special_tokens: boolean },
  ): { readonly ids: readonly (number | undefined)[] };
}

/** What of a tokenizer is computed here and not by the peer. */
export interface Own {
  readonly added: readonly AddedToken[];
  readonly around: Around;
  /** What is done to a text between the added tokens that are found before it, and those that are found after it. */
  readonly normalize: (text: string) => string;
  /** Begins to decode. */
  readonly decoding: () => Stage;
  /** The text of each id. */
  readonly texts: readonly (string | undefined)[];
  /** What begins a text after its normalisation, unless it or a space does; where no token is before it. */
  readonly prefix: string;
  /** The bytes that each id stands for, where ids spell texts. */
  readonly spelling: ((id: number) => Uint8Array) | undefined;
}

const isNormalized = (token: AddedToken) => Boolean(token["normalized"] ?? !token["special"]);

/** A tokenizer whose words and models `@huggingface/tokenizers` computes. */
export class HuggingFaceTokenizer extends Tokenizer implements PretrainedTokenizer {
  readonly vocabSize: number;
  readonly endToken: number | undefined;
  readonly startTokens: readonly number[];
  readonly specialTokens: SpecialTokens;
  readonly chatTemplate: string | undefined;
  readonly chatTemplates: { readonly [name: string]: string };
  readonly #peer: PeerTokenizer;
  readonly #normalize: (text: string) => string;
  readonly #files: TokenizerFiles;
  readonly #own: Own;
  /** The text of each id. */
  readonly #texts: (string | undefined)[];
  readonly #special: ReadonlySet<string>;
  /** Added tokens as they are in texts, and as they are in normalised ones. */
  readonly #added: readonly [AddedTokens, AddedTokens];

  constructor(peer: PeerTokenizer, info: TokenizerInfo, own: Own) {
    super();
    this.#peer = peer;
    this.#own = own;
    this.#files = info.files;
    this.#normalize = own.normalize;
    const added = own.added.map((token) => this.#asFound(token));
    const inSpecial = new Set(own.added.filter((one) => one["special"]).map((one) => one.content));
    const flagged = added.map((one) => ({ ...one, special: inSpecial.has(one.content) }));
    this.#added = [
      new AddedTokens(flagged.filter((one) => !isNormalized(one))),
      new AddedTokens(flagged.filter(isNormalized)),
    ];
    this.#special = inSpecial;
    this.#texts = [...own.texts];
    for (const { id, content } of added) this.#texts[id] = content;
    this.vocabSize = own.texts.length;
    this.endToken = info.endToken;
    this.startTokens = own.around.before;
    this.specialTokens = info.specialTokens;
    this.chatTemplate = info.chatTemplate;
    this.chatTemplates = info.chatTemplates;
    if (own.spelling) spells(this, own.spelling);
  }

  /** As in Python, a token that is found in normalised texts stands for its normalised content. */
  #asFound(token: AddedToken): AddedToken {
    const normalized = isNormalized(token);
    return {
      ...token,
      normalized,
      content: normalized ? this.#normalize(token.content) : token.content,
    };
  }

  encode(text: string, options?: EncodeOptions): Uint32Array {
    if (typeof text !== "string") throw invalid(`encode takes a string, not ${show(text)}`);
    const special = parsesSpecial(options);
    return inspect("encode", () => {
      const { before, after } = this.#own.around;
      const add = options?.addSpecialTokens ?? true;
      const ids: number[] = add ? [...before] : [];
      this.#encodeText(text, special, ids);
      return Uint32Array.from(add ? ids.concat(after) : ids);
    });
  }

  #encodeText(text: string, special: boolean, ids: number[]): void {
    const [given, normalized] = this.#added;
    const sections = given.split(text, special);
    for (const [at, section] of sections.entries()) {
      if (section.token) ids.push(section.token.id);
      if (section.token || !section.text) continue;
      const inner = normalized.split(this.#normalize(section.text), special);
      for (const [i, one] of inner.entries()) this.#encodeSection(one, at + i === 0, ids);
    }
  }

  #encodeSection({ text, token }: Section, first: boolean, ids: number[]): void {
    if (token) ids.push(token.id);
    if (token || !text) return;
    const { prefix } = this.#own;
    const begins = !first || text.startsWith(prefix) || text.startsWith(" ");
    const whole = begins ? text : prefix + text;
    for (const id of this.#peer.encode(whole, { add_special_tokens: false }).ids) {
      if (id === undefined) {
        throw new TinyloomError(
          "invalid-options",
          `encode: the tokenizer has no token for ${show(whole)}, and none for unknown texts`,
        );
      }
      ids.push(id);
    }
  }

  decode(tokens: TokenIds, options?: DecodeOptions): string {
    const decoder = this.decoder(options);
    const texts = Array.from(asTokens("tokens", tokens), (id) => decoder.push(id));
    return texts.join("") + decoder.end();
  }

  /** An id that the tokenizer does not have is no text, as in Python: models may have more ids. */
  decoder(options?: DecodeOptions): TokenDecoder {
    const special = decodesSpecial(options);
    const { decoding } = this.#own;
    let stage = decoding();
    return {
      push: (token) => {
        const text = this.#texts[asTokens("token", [token])[0] as number];
        if (text === undefined || (!special && this.#special.has(text))) return "";
        return stage.push(text).join("");
      },
      end: () => {
        const rest = stage.end().join("");
        stage = decoding();
        return rest;
      },
    };
  }

  save(): TokenizerFiles {
    return copied(this.#files);
  }
}
