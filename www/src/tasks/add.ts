import { below, type Task } from "./task.ts";

export const add: Task = {
  label: "Add numbers",
  hint: "It adds two numbers below 100. There are 10,000 such sums, and it never sees the ones that it is asked.",
  asks: "A sum of two numbers below 100",
  mark: "=",
  shown: ["47+38", "99+99", "8+5", "64+36", "12+80", "73+19", "50+7", "26+66"],
  problems: 9500,
  training: { steps: 1200, tokensPerStep: 1024, learningRate: 5e-3 },
  make: (random) => `${below(random, 100)}+${below(random, 100)}`,
  solve(sum) {
    const [, first, second] = /^(\d{1,2})\+(\d{1,2})$/.exec(sum) ?? [];
    return first === undefined ? undefined : String(Number(first) + Number(second));
  },
};
