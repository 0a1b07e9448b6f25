import { randomSource } from "../../stories/generate.ts";
import { inTurns } from "../turns.ts";

/** A problem, and the only right answer to it. */
export interface Problem {
  readonly prompt: string;
  readonly completion: string;
}

/** Something to learn whose answers can be checked. */
export interface Task {
  /** What the control says, and the run's name. */
  readonly label: string;
  /** What a visitor has to know about it. */
  readonly hint: string;
  /** What a visitor may ask. */
  readonly asks: string;
  /** The character that ends a prompt. */
  readonly mark: string;
  /** Prompts without their mark. They are shown while it learns, and kept out of the training text. */
  readonly shown: readonly string[];
  /** How many problems are made, with those kept for the exam. */
  readonly problems: number;
  /** What trains it: see `sizes.mjs` for what was measured. */
  readonly training: { steps: number; tokensPerStep: number; learningRate: number };
  /** A new prompt without its mark. */
  make(random: () => number): string;
  /** The right answer to a prompt without its mark; undefined where it is none of this task. */
  solve(prompt: string): string | undefined;
}

/** Problems of the exam. */
export const EXAM = 128;
/** Of the problems, those kept from training: validation loss and exam are of them. */
export const HELD_OUT = 0.04;
/** The byte after each answer, from which the model learns to stop: a line break. */
export const END = 10;

/** A whole number below `below`. */
export const below = (random: () => number, below: number): number => Math.floor(random() * below);

/** Three to six letters of an alphabet. */
export function word(random: () => number, alphabet: string): string {
  const length = 3 + below(random, 4);
  return Array.from({ length }, () => alphabet[below(random, alphabet.length)]).join("");
}

/** Different problems, one a line; those that are shown come last, so that they are kept out of training. */
export const problemText = async (task: Task, seed: number): Promise<string> =>
  (await inTurns(problemLines(task, seed))).join("");

function* problemLines(task: Task, seed: number): Generator<string, void, undefined> {
  const random = randomSource(seed);
  const prompts = new Set(task.shown);
  const line = (prompt: string) => `${prompt}${task.mark}${task.solve(prompt)}\n`;
  while (prompts.size < task.problems) {
    const prompt = task.make(random);
    if (prompts.has(prompt)) continue;
    prompts.add(prompt);
    yield line(prompt);
  }
  yield* task.shown.map(line);
}

/** The problems of a text that `problemText` gave. */
export function readProblems(task: Task, text: string): Problem[] {
  const lines = text.split("\n").filter(Boolean);
  return lines.map((line) => {
    const end = line.indexOf(task.mark) + 1;
    return { prompt: line.slice(0, end), completion: line.slice(end) };
  });
}
