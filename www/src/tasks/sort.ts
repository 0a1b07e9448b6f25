import { type Task, word } from "./task.ts";

export const sort: Task = {
  label: "Sort digits",
  hint: "It reads three to six digits and writes them in order.",
  asks: "Three to six digits",
  mark: ">",
  shown: ["314159", "27182", "9081", "555", "60221", "1984", "720", "40409"],
  problems: 8000,
  training: { steps: 600, tokensPerStep: 512, learningRate: 5e-3 },
  make: (random) => word(random, "0123456789"),
  solve: (digits) => (/^\d{1,6}$/.test(digits) ? [...digits].sort().join("") : undefined),
};
