import { below, type Task } from "./task.ts";

const OPEN = "([{";
const CLOSE = ")]}";

/** The brackets that are still to be closed, the innermost first; undefined where one is closed wrongly. */
function missing(brackets: string): string | undefined {
  const open: string[] = [];
  for (const one of brackets) {
    if (OPEN.includes(one)) open.push(CLOSE[OPEN.indexOf(one)]!);
    else if (open.pop() !== one) return undefined;
  }
  return open.reverse().join("");
}

export const brackets: Task = {
  label: "Close brackets",
  hint: "It reads three to eight brackets and closes those that are still open, in the right order.",
  asks: "Three to eight brackets, some still open",
  mark: ">",
  shown: ["([{", "{[]", "(()(", "[{()}", "{{[", "([])(", "[[{}", "{([]{"],
  problems: 8000,
  training: { steps: 800, tokensPerStep: 512, learningRate: 5e-3 },
  make(random) {
    const length = 3 + below(random, 6);
    let made = "";
    while (made.length < length) {
      const open = missing(made)!;
      const closes = open !== "" && random() < 0.35;
      made += closes ? open[0] : OPEN[below(random, 3)];
    }
    return made;
  },
  solve: (given) => (/^[()[\]{}]{1,8}$/.test(given) ? missing(given) : undefined),
};
