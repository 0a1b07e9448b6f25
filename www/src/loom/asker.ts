/** Asks models their questions, one model after another, and keeps what came of them. */
import { answer, type Marks, marksOf, type Question, rightOf } from "./ask.ts";
import { Away } from "./away.ts";
import type { Snapshot } from "./track.ts";

/** Milliseconds between two models, at most. */
const REST = 1500;

/** What is to be asked. */
export interface Exam {
  readonly snapshot: Snapshot;
  readonly questions: readonly Question[];
  /** Heads that are cut. */
  readonly off: ReadonlySet<number>;
}

/** Asks all questions of a model. */
export type AskAll = (exam: Exam) => Promise<Marks>;

/** What the marks of a model with these heads cut are kept by. */
export const keyOf = (off: ReadonlySet<number>): string => [...off].sort((a, b) => a - b).join();

export class Asker {
  readonly #askAll: AskAll;
  readonly #next: (milliseconds: number) => Exam | undefined;
  readonly #done: () => void;
  readonly #rests: () => boolean;
  #asking = false;
  #took = 0;

  /**
   * @param next - what is to be asked next, if its answers take these milliseconds.
   * @param done - hears that a model has answered.
   * @param rests - whether something else needs the machine, too.
   */
  constructor(
    askAll: AskAll,
    next: (milliseconds: number) => Exam | undefined,
    done: () => void,
    rests: () => boolean,
  ) {
    this.#askAll = askAll;
    this.#next = next;
    this.#done = done;
    this.#rests = rests;
  }

  /** Milliseconds that the last model took. */
  get took(): number {
    return this.#took;
  }

  /** Asks until all that is wanted has been asked. */
  async ask(): Promise<void> {
    if (this.#asking) return;
    this.#asking = true;
    try {
      for (;;) {
        const exam = this.#next(this.#took);
        if (!exam) break;
        const began = performance.now();
        exam.snapshot.asked = true;
        exam.snapshot.marks.set(keyOf(exam.off), await this.#askAll(exam));
        this.#took = performance.now() - began;
        this.#done();
        if (this.#rests()) await new Promise((go) => setTimeout(go, Math.min(REST, this.#took)));
      }
    } finally {
      this.#asking = false;
    }
  }
}

/** Asks in a worker. Where it does not load, the page asks by itself. */
export function askingWorker(): AskAll {
  const away = new Away();
  return async ({ snapshot, questions, off }) => {
    const { shape, halves } = snapshot;
    const marks = await away.do<Marks>({ shape, halves, questions, off });
    if (marks) return marks;
    await new Promise((turn) => setTimeout(turn)); // the page draws between two models
    return marksOf(snapshot.weights, questions, off);
  };
}

/** What is said of a square that is pointed at. */
export function squareWords(
  { snapshot, questions, off }: Exam,
  index: number,
  spelt: (tokens: Iterable<number>) => string,
  ofTask: boolean,
): string {
  const question = questions[index];
  if (!question) return "";
  const { given, right } = answer(snapshot.weights, question, off);
  const [asked, wanted, said] = [question.prompt, question.wanted, given].map(spelt) as [
    string,
    string,
    string,
  ];
  if (ofTask) {
    const answered = `${asked} ${said || "(nothing)"}`;
    return right ? `${answered} ✓` : `${answered} ✗ right is ${wanted}`;
  }
  const guessed = `…${asked}[${said || "⏎"}]`;
  return right ? `${guessed} ✓` : `${guessed} ✗ right is ${wanted || "⏎"}`;
}

export const rightSaid = (marks: Marks | undefined): string =>
  marks ? `${rightOf(marks)} right` : "not asked yet";
