/** Merges of byte-pair encoding from the scores of SentencePiece's pieces, as transformers makes them. */

/** A piece of a vocabulary. */
export interface ScoredPiece {
  readonly text: string;
  readonly score: number;
  /** Whether it is a part of others before their scores are looked at. */
  readonly first: boolean;
  /** Whether merges make it, or are made with it. */
  readonly merged: boolean;
}

/** A run of spaces as pieces have it; llama.cpp's converter writes those of the user's with spaces. */
export const spacePieces = (text: string): string =>
  /^ +$/.test(text) ? text.replaceAll(" ", "\u2581") : text;

/**
 * Every way in which two pieces make a third, those of higher scores first. SentencePiece merges the pair whose piece has
 * the highest score, so both make the same of a text.
 */
export function mergesOfScores(pieces: readonly ScoredPiece[]): [string, string][] {
  const ids = new Map<string, number>();
  for (const [id, { text, merged }] of pieces.entries()) if (merged) ids.set(text, id);
  const ordered = pieces
    .filter(({ merged }) => merged)
    .sort((a, b) => Number(b.first) - Number(a.first) || b.score - a.score);
  const merges: [string, string][] = [];
  for (let from = 0; from < ordered.length; ) {
    const { first, score } = ordered[from] as ScoredPiece;
    // Pieces of one score: their merges are ordered together, those of longer parts first.
    const group: Split[] = [];
    for (; from < ordered.length; from++) {
      const piece = ordered[from] as ScoredPiece;
      if (piece.first !== first || (!first && piece.score !== score)) break;
      group.push(...splitsOf(piece.text, ids));
    }
    group.sort((a, b) => b.lengths - a.lengths);
    for (const { merge } of group) merges.push(merge);
  }
  return merges;
}

interface Split {
  readonly merge: [string, string];
  /** Of the left part, then of the right one. */
  readonly lengths: number;
  readonly ids: readonly [number, number];
}

function splitsOf(text: string, ids: ReadonlyMap<string, number>): Split[] {
  const characters = Array.from(text);
  const found: Split[] = [];
  let at = 0;
  for (const [index, character] of characters.slice(0, -1).entries()) {
    at += character.length;
    const [left, right] = [text.slice(0, at), text.slice(at)];
    const [a, b] = [ids.get(left), ids.get(right)];
    if (a === undefined || b === undefined) continue;
    const lengths = (index + 1) * 65_536 + characters.length - index - 1;
    found.push({ merge: [left, right], lengths, ids: [a, b] });
  }
  return found.sort((a, b) => a.ids[0] - b.ids[0] || a.ids[1] - b.ids[1]);
}
