import {
  type Alternative,
  endings,
  grammar,
  middleCounts,
  middles,
  openings,
  type Rule,
} from "./grammar.ts";

/** Mulberry32: a small counter-based generator; the same stream everywhere. */
export function randomSource(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let x = Math.imul(state ^ (state >>> 15), state | 1);
    x ^= x + Math.imul(x ^ (x >>> 7), x | 61);
    return ((x ^ (x >>> 14)) >>> 0) / 4294967296;
  };
}

/** The alternative that a number in [0, 1) falls to. */
function pick(alternatives: readonly Alternative[], point: number): Alternative {
  let below = 0;
  for (const alternative of alternatives) {
    below += alternative.probability;
    if (point < below) return alternative;
  }
  return alternatives.at(-1)!; // the sum of the probabilities may round to just below 1
}

function expand(symbol: Rule, random: () => number, words: string[]): void {
  const chosen = pick(grammar.get(symbol)!, random());
  for (const part of chosen.parts) {
    if (part.symbol === undefined) words.push(part.word);
    else expand(part.symbol, random, words);
  }
}

function sentence(kind: Rule, random: () => number): string {
  const words: string[] = [];
  expand(kind, random, words);
  return `${words.join(" ")}.`;
}

/** One story on one line, without the line break. */
export function generateStory(random: () => number): string {
  const count = middleCounts[Math.floor(random() * middleCounts.length)]!;
  const kinds = [openings, ...Array.from({ length: count }, () => middles), endings];
  return kinds.map((kind) => sentence(kind, random)).join(" ");
}

/** Stories, one a line, of exactly `bytes` bytes (the text is ASCII): the last one is cut. */
export function* storyLines(seed: number, bytes: number): Generator<string, void, undefined> {
  const random = randomSource(seed);
  for (let left = bytes; left > 0; ) {
    const story = `${generateStory(random)}\n`.slice(0, left);
    yield story;
    left -= story.length;
  }
}

/** The same as one text. The same seed gives the same text. */
export const generateStories = (seed: number, bytes: number): string =>
  [...storyLines(seed, bytes)].join("");
