/** Rules that can say by themselves whether a visitor wants a sample. */
export interface Rule {
  readonly name: string;
  readonly label: string;
  holds(text: string): boolean;
}

const COLOURS =
  /\b(red|blue|gold|golden|pink|white|green|black|yellow|brown|purple|grey|gray|orange)\b/i;
/** The most words of a short sentence, and the least of a long one. The stories' middle lies between. */
const [SHORT, LONG] = [8, 11];

const words = (text: string): number => text.match(/[\p{L}\p{N}’']+/gu)?.length ?? 0;

export const RULES: readonly Rule[] = [
  {
    name: "short",
    label: `short: at most ${SHORT} words`,
    holds: (text) => words(text) > 0 && words(text) <= SHORT,
  },
  {
    name: "long",
    label: `long: at least ${LONG} words`,
    holds: (text) => words(text) >= LONG,
  },
  { name: "colour", label: "mentions a colour", holds: (text) => COLOURS.test(text) },
  { name: "red", label: "mentions the word red", holds: (text) => /\bred\b/i.test(text) },
  { name: "dot", label: "ends with a dot", holds: (text) => /\.\s*$/.test(text) },
  { name: "question", label: "asks something", holds: (text) => /\?\s*$/.test(text) },
];

export const ruleOf = (name: string): Rule => RULES.find((one) => one.name === name) ?? RULES[0]!;
