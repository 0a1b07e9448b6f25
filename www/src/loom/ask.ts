/** Questions that the stage asks of a model: the answer to a problem, the next letter of a text. */
import { END } from "../tasks/task.ts";
import { guessOf, Pass } from "./pass.ts";
import type { Weights } from "./weights.ts";

/** One of the squares: what is read, and what is right. */
export interface Question {
  readonly prompt: Uint8Array;
  readonly wanted: Uint8Array;
}

/** What came of a question. */
export interface Answer {
  readonly given: Uint8Array;
  readonly right: boolean;
  /** Whether it ended where the right answer does. */
  readonly stops: boolean;
}

/** How a model did in all questions. */
export interface Marks {
  readonly right: readonly boolean[];
  /** Questions whose answer ended where the right one does. */
  readonly stops: number;
}

/** How many were right. */
export const rightOf = ({ right }: Marks): number => right.filter(Boolean).length;

const utf8 = new TextEncoder();

/** Problems as questions: the answers end with a line break. */
export const questionsOf = (
  problems: readonly { readonly prompt: string; readonly completion: string }[],
): Question[] =>
  problems.map(({ prompt, completion }) => ({
    prompt: utf8.encode(prompt),
    wanted: Uint8Array.from([...utf8.encode(completion), END]),
  }));

/** Letters that are read before each one that is guessed. */
const BEFORE = 16;

/** Each of the last letters of a text as a question: which one comes next. */
export function lettersOf(text: Uint8Array, count: number): Question[] {
  const first = Math.max(1, text.length - count);
  return Array.from({ length: text.length - first }, (_, at) => ({
    prompt: text.subarray(Math.max(0, first + at - BEFORE), first + at),
    wanted: text.subarray(first + at, first + at + 1),
  }));
}

/** The model's own answer, letter by letter, each the likeliest. */
export function answer(weights: Weights, question: Question, off?: ReadonlySet<number>): Answer {
  const { prompt, wanted } = question;
  const most = wanted.length;
  const pass = new Pass(weights, prompt.length + most, off);
  for (const token of prompt) pass.read(token);
  const given: number[] = [];
  while (given.length < most) {
    const { token } = guessOf(pass.logits());
    given.push(token);
    if (token === END) break;
    if (given.length < most) pass.read(token);
  }
  const right = given.length === most && given.every((token, at) => token === wanted[at]);
  return {
    given: Uint8Array.from(given),
    right,
    stops: given.length === most && given.at(-1) === END,
  };
}

/** Asks all questions of a model. */
export function marksOf(
  weights: Weights,
  questions: readonly Question[],
  off: ReadonlySet<number>,
): Marks {
  const answers = questions.map((question) => answer(weights, question, off));
  return {
    right: answers.map(({ right }) => right),
    stops: answers.filter(({ stops }) => stops).length,
  };
}
