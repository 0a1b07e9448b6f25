import { type Task, word } from "./task.ts";

const LETTERS = "abcdefghijklmnopqrstuvwxyz";

export const reverse: Task = {
  label: "Reverse a word",
  hint: "It reads a word of three to six letters and writes it backwards. Nobody tells it how: it only sees solved examples.",
  asks: "A word of three to six letters",
  mark: ">",
  shown: ["loom", "thread", "weave", "cotton", "yarn", "planet", "silk", "bobbin"],
  problems: 8000,
  training: { steps: 600, tokensPerStep: 512, learningRate: 5e-3 },
  make: (random) => word(random, LETTERS),
  solve: (word) => (/^[a-z]{1,6}$/.test(word) ? [...word].reverse().join("") : undefined),
};
