/** What is read of tokenizer.json here. */
export interface TokenizerJson {
  readonly added_tokens: readonly AddedToken[];
  readonly normalizer?: TokenizerPart | null;
  readonly pre_tokenizer?: TokenizerPart | null;
  readonly post_processor?: TokenizerPart | null;
  readonly decoder?: TokenizerPart | null;
  readonly model: TokenizerPart & {
    readonly vocab: { readonly [token: string]: number };
    readonly merges: readonly (string | readonly [string, string])[];
  };
}

/** A part of tokenizer.json, such as its pre-tokenizer. */
export interface TokenizerPart {
  readonly type?: string;
  readonly [name: string]: unknown;
}

export interface AddedToken {
  readonly id: number;
  readonly content: string;
  readonly [flag: string]: unknown;
}

/** An entry of a vocabulary that is a list, as of Unigram. */
export type Entry = readonly [text: string, score: number];

/** The id of a token by its text. */
export function idOf({ added_tokens, model }: TokenizerJson, text: string): number | undefined {
  const added = added_tokens.find(({ content }) => content === text);
  if (added) return added.id;
  const vocab: TokenizerJson["model"]["vocab"] | readonly Entry[] = model.vocab;
  if (!Array.isArray(vocab)) return (vocab as TokenizerJson["model"]["vocab"])[text];
  const at = (vocab as readonly Entry[]).findIndex(([token]) => token === text);
  return at < 0 ? undefined : at;
}

/** The text of each id. Of several texts with one id, an added token's counts. */
export function textsOf({ added_tokens, model }: TokenizerJson): string[] {
  const texts: string[] = [];
  const vocab: TokenizerJson["model"]["vocab"] | readonly Entry[] = model.vocab;
  if (Array.isArray(vocab)) {
    for (const [id, [text]] of (vocab as readonly Entry[]).entries()) texts[id] = text;
  } else {
    for (const [text, id] of Object.entries(vocab as TokenizerJson["model"]["vocab"])) {
      texts[id] = text;
    }
  }
  for (const { id, content } of added_tokens) texts[id] = content;
  return texts;
}

/** The parts of a part that may be a `Sequence` of several. */
export function partsOf(
  part: TokenizerPart | null | undefined,
  several: "normalizers" | "pretokenizers" | "processors" | "decoders",
): readonly TokenizerPart[] {
  if (!part) return [];
  if (part.type !== "Sequence") return [part];
  const parts: unknown = part[several];
  if (!Array.isArray(parts)) return [];
  // What is no part stays, to be refused.
  return parts.flatMap((one: TokenizerPart) => (one ? partsOf(one, several) : [one]));
}
