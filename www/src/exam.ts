/** How well a model does what it is taught, as a visitor would count it. */
import type { Model } from "tinyloom/worker";
import type { TaskName } from "./tasks/index.ts";
import { END, type Problem } from "./tasks/task.ts";

/** What a score counts. */
export type ScoreKind = "problems" | "sentences" | "guesses";

/** What it counts for a task, or for a text, which may be judged by its grammar. */
export function scoreKind(task: TaskName | undefined, judged: boolean): ScoreKind {
  if (task) return "problems";
  return judged ? "sentences" : "guesses";
}

/** How many were right, and of how many. */
export interface Score {
  readonly right: number;
  readonly of: number;
}

/** Numbers that the answers to a question may take at once. */
const MOST_NUMBERS = 4 << 20;
/** Windows of a text that are looked at. */
const WINDOWS = 8;

/** Index of the largest number of a row. */
function likeliest(logits: Float32Array, row: number, width: number): number {
  let best = row * width;
  for (let i = best + 1; i < (row + 1) * width; i++) if (logits[i]! > logits[best]!) best = i;
  return best - row * width;
}

/** Of the rows from `from`, how many have their likeliest token where it should be. */
function hits(
  logits: Float32Array,
  from: number,
  wanted: readonly number[],
  width: number,
): number {
  return wanted.filter((token, at) => likeliest(logits, from + at, width) === token).length;
}

/**
 * Exact answers at temperature 0. The model is shown each right answer and has to name each next letter of it: one
 * look per problem. It does so everywhere just when it writes the same answer by itself.
 */
export async function exam(model: Model, problems: readonly Problem[]): Promise<Score> {
  const width = model.config.vocab_size ?? 256;
  const utf8 = new TextEncoder();
  let right = 0;
  for (const { prompt, completion } of problems) {
    const tokens = utf8.encode(prompt + completion);
    const wanted = [...tokens.subarray(prompt.length), END];
    const logits = await model.logits(tokens);
    if (hits(logits, prompt.length - 1, wanted, width) === wanted.length) right++;
  }
  return { right, of: problems.length };
}

/** Of the last tokens of a text, which training never sees, those that are the model's likeliest guess. */
export async function guesses(model: Model, tokens: Uint32Array, context: number): Promise<Score> {
  const width = model.config.vocab_size ?? 256;
  const length = Math.min(
    context,
    tokens.length - 1,
    Math.max(1, Math.floor(MOST_NUMBERS / width)),
  );
  let [right, of] = [0, 0];
  for (let window = 1; window <= WINDOWS; window++) {
    const start = tokens.length - window * length - 1;
    if (start < 0) break;
    const seen = tokens.slice(start, start + length);
    const wanted = [...tokens.subarray(start + 1, start + length + 1)];
    right += hits(await model.logits(seen), 0, wanted, width);
    of += length;
  }
  return { right, of };
}
