import { grammar, type Part, type Rule, sentencesPerStory } from "./grammar.ts";

/** For each word position where a derivation can end: the summed probability of the derivations that end there. */
type Ends = Map<number, number>;

function add(ends: Ends, end: number, probability: number): void {
  ends.set(end, (ends.get(end) ?? 0) + probability);
}

/** The inside algorithm over words: every derivation of `symbol` that starts at word `start`. */
function derive(symbol: Rule, words: readonly string[], start: number): Ends {
  const result: Ends = new Map();
  for (const { probability, parts } of grammar.get(symbol)!) {
    let ends: Ends = new Map([[start, probability]]);
    for (const part of parts) {
      ends = advance(ends, part, words);
      if (ends.size === 0) break;
    }
    for (const [end, p] of ends) add(result, end, p);
  }
  return result;
}

function advance(ends: Ends, part: Part, words: readonly string[]): Ends {
  const next: Ends = new Map();
  for (const [at, probability] of ends) {
    if (part.symbol === undefined) {
      if (words[at] === part.word) add(next, at + 1, probability);
    } else {
      for (const [end, p] of derive(part.symbol, words, at)) add(next, end, p * probability);
    }
  }
  return next;
}

/**
 * The natural logarithm of the chance that a sentence drawn from a story is `sentence` (with or without its full
 * stop); -Infinity for what is no sentence of the grammar.
 */
export function logProbability(sentence: string): number {
  const words = sentence.replace(/\.$/, "").split(" ");
  const sentences = sentencesPerStory.reduce((sum, [, n]) => sum + n, 0);
  let probability = 0;
  for (const [kind, count] of sentencesPerStory) {
    probability += (count / sentences) * (derive(kind, words, 0).get(words.length) ?? 0);
  }
  return Math.log(probability);
}

/** Whether the grammar derives `sentence`. */
export function parseSentence(sentence: string): boolean {
  return logProbability(sentence) > -Infinity;
}
