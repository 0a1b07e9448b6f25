import type { Model } from "tinyloom/worker";
import type { Data } from "./data.ts";
import { exam, guesses, type Score } from "./exam.ts";
import type { SamplePiece } from "./sample.ts";

/** Between two exams lies at least SHARE times as long as one takes, and PAUSE milliseconds at least. */
const [SHARE, PAUSE] = [8, 400];
/** Sentences that a share is taken of: those of the newest three or four samples. */
const SENTENCES = 12;

/** Says from time to time how well a model does. Training does not notice: its losses stay the same to the bit. */
export class Examiner {
  readonly #model: Model;
  readonly #data: Data;
  readonly #context: number;
  #next = performance.now() + PAUSE;
  #asked = -1;
  /** Of the newest sentences, whether each was grammatical and new. */
  #sentences: boolean[] = [];

  constructor(model: Model, data: Data, context: number) {
    this.#model = model;
    this.#data = data;
    this.#context = context;
  }

  /** Whether it is time for the next one. */
  get due(): boolean {
    return performance.now() >= this.#next;
  }

  /** Asks the model of this step, unless that was done. */
  async ask(step: number): Promise<Score | undefined> {
    if (step === this.#asked) return undefined;
    this.#asked = step;
    const { exam: problems, tail } = this.#data;
    const began = performance.now();
    const score = problems
      ? await exam(this.#model, problems)
      : tail && (await guesses(this.#model, tail, this.#context));
    const now = performance.now();
    this.#next = now + Math.max(PAUSE, SHARE * (now - began));
    return score;
  }

  /** The share of sentences that are grammatical and new, with those of this sample. */
  ofSentences(pieces: readonly SamplePiece[]): Score | undefined {
    for (const { verdict } of pieces) {
      if (verdict === "novel") this.#sentences.push(true);
      if (verdict === "seen" || verdict === "ungrammatical") this.#sentences.push(false);
    }
    this.#sentences = this.#sentences.slice(-SENTENCES);
    const of = this.#sentences.length;
    return of === 0 ? undefined : { right: this.#sentences.filter(Boolean).length, of };
  }
}
