/** Scores of SentencePiece from the merges of tokenizer.json, where `tokenizer.model` is not there. */

import { show } from "../options.js";
import type { TokenizerJson } from "../text/tokenizer-json.js";
import type { Piece } from "./sentencepiece.js";

/** Kinds of tokens in SentencePiece. */
const [NORMAL, UNKNOWN, BYTE] = [1, 2, 6];

/** The tokens by id; undefined for an id that only an added token has. */
export type Pieces = readonly (Piece | undefined)[];

/**
 * The tokens with scores by which llama.cpp merges as the merges do: that of a token is higher the earlier it is merged
 * first. A string says why there are none.
 */
export function piecesOfMerges({ model, added_tokens }: TokenizerJson): Pieces | string {
  const { vocab } = model;
  const added = new Set(added_tokens.map(({ content }) => content));
  const ranks = rankedTokens(model.merges, added);
  if (typeof ranks === "string") return ranks;
  const pieces: (Piece | undefined)[] = [];
  let afterMerges = model.merges.length;
  for (const [text, id] of Object.entries(vocab)) {
    const rank = ranks.get(text)?.first;
    const byte = /^<0x[0-9A-F]{2}>$/.test(text);
    const type = byte ? BYTE : text === model["unk_token"] ? UNKNOWN : NORMAL;
    if (rank === undefined && type === NORMAL && !added.has(text) && Array.from(text).length > 1) {
      return `${show(text)} is in model.vocab and is made by no merge, and llama.cpp would make it`;
    }
    pieces[id] = { text, score: type === NORMAL ? -(rank ?? afterMerges++) : 0, type };
  }
  const unmerged = splitWithoutMerge(vocab, ranks, added);
  if (unmerged) return unmerged;
  return Array.from(pieces, (piece) => piece); // without holes
}

type Merges = TokenizerJson["model"]["merges"];

/** The rank of the first merge of a token, and how many merges make it. */
interface Rank {
  readonly first: number;
  count: number;
}

/** The ranks by token. All merges of one token stand together, since it has one score. */
function rankedTokens(merges: Merges, added: ReadonlySet<string>): Map<string, Rank> | string {
  const ranks = new Map<string, Rank>();
  let before = "";
  for (const [rank, merge] of merges.entries()) {
    const [left, right] = typeof merge === "string" ? merge.split(" ") : merge;
    const text = `${left}${right}`;
    const known = ranks.get(text);
    if (known && text !== before && !added.has(text)) {
      return `merges of ${show(text)} do not stand together, and llama.cpp has one score for each token`;
    }
    if (known) known.count += 1;
    else ranks.set(text, { first: rank, count: 1 });
    before = text;
  }
  return ranks;
}

/** Whether two tokens make a third without a merge: llama.cpp would merge them. */
function splitWithoutMerge(
  vocab: { readonly [token: string]: number },
  ranks: ReadonlyMap<string, Rank>,
  added: ReadonlySet<string>,
): string | undefined {
  for (const [text, { count }] of ranks) {
    if (added.has(text)) continue;
    let splits = 0;
    for (let at = 1; at < text.length; at++) {
      if (vocab[text.slice(0, at)] !== undefined && vocab[text.slice(at)] !== undefined)
        splits += 1;
    }
    if (splits > count) {
      return `${count} merges make ${show(text)}, which ${splits} pairs of tokens spell, and llama.cpp would merge all`;
    }
  }
  return undefined;
}
