/**
 * The grammar of the built-in stories: symbols, their alternatives and how likely each one is.
 *
 * An alternative is a row of words and `<symbols>`; equal chances unless it starts with a weight ("3: the").
 * It is made for very small byte-level models: few short words that differ early in their spelling, and every
 * choice is settled by the word or two before it. The independent slots of one sentence still multiply to
 * hundreds of thousands of sentences, so text hardly ever repeats and a good sample cannot be mere recall.
 *
 * Nothing is recursive and no sentence has two derivations, so entropy and parse are exact.
 */
export const rules = {
  opening: ["one <time> <animal> <deed>"],
  middle: ["2: <animal> <deed>", "then <animal> <deed>", "soon <animal> <deed>"],
  ending: ["so <animal> <deed>"],

  deed: ["5: <made> a <thing> <end>", "<ran> with <friend> <where>"],
  end: ["2: <where>", "for <friend>", "for <friend> <where>"],
  where: ["<near> the <place>"],
  animal: ["<mood> <creature>"],
  thing: ["<color> <toy>"],

  time: ["day", "night", "morning"],
  mood: ["big", "shy", "kind", "tiny", "wise", "funny", "quick"],
  creature: ["fox", "bear", "cat", "dog", "hen", "owl", "mouse"],
  made: ["made", "found", "hid", "kept", "took", "won"],
  ran: ["ran", "sang", "danced", "played"],
  friend: ["ann", "tom", "max", "lily"],
  color: ["red", "blue", "gold", "pink", "white"],
  toy: ["ball", "key", "hat", "cup", "drum", "lamp", "shell"],
  near: ["by", "near", "under", "behind"],
  place: ["river", "hill", "tree", "barn", "mill", "gate", "pond"],
} as const satisfies Record<string, readonly string[]>;

export type Rule = keyof typeof rules;

/** The kinds of sentence, in the order a story takes them. */
export const openings: Rule = "opening";
export const middles: Rule = "middle";
export const endings: Rule = "ending";

/** How many middle sentences a story has; each count is equally likely. */
export const middleCounts = [2, 3, 4] as const;

/** One part of an alternative: a literal word or a symbol to expand. */
export type Part = { word: string; symbol?: undefined } | { symbol: Rule; word?: undefined };
export interface Alternative {
  probability: number;
  parts: readonly Part[];
}

function compile(text: string): { weight: number; parts: Part[] } {
  const [, weight, body] = /^(?:(\d+): )?(.*)$/.exec(text)!;
  const parts = body!.split(" ").map((word): Part => {
    const symbol = /^<(\w+)>$/.exec(word)?.[1];
    if (symbol === undefined) return { word };
    if (!(symbol in rules)) throw new Error(`the grammar has no rule <${symbol}>`);
    return { symbol: symbol as Rule };
  });
  return { weight: Number(weight ?? 1), parts };
}

/** The rules with probabilities that sum to one for each symbol. */
export const grammar: ReadonlyMap<Rule, readonly Alternative[]> = new Map(
  Object.entries(rules).map(([symbol, texts]) => {
    const compiled = texts.map(compile);
    const total = compiled.reduce((sum, { weight }) => sum + weight, 0);
    return [
      symbol as Rule,
      compiled.map(({ weight, parts }) => ({ probability: weight / total, parts })),
    ];
  }),
);

/** Expected sentences of each kind in a story. */
const meanMiddles = middleCounts.reduce((sum, n) => sum + n, 0) / middleCounts.length;
export const sentencesPerStory: readonly (readonly [Rule, number])[] = [
  [openings, 1],
  [middles, meanMiddles],
  [endings, 1],
];
