/** Asks a model's questions one by one, so that the page never stands still, and keeps what came of them. */
import { answer, type Question } from "./ask.ts";
import { type Marks, rightOf, type Snapshot } from "./track.ts";

/** Milliseconds of questions after which the page gets its turn. */
const TURN = 8;
/** Milliseconds between two rounds of questions, at most. */
const REST = 1500;

/** What is to be asked. */
export interface Exam {
  readonly snapshot: Snapshot;
  readonly questions: readonly Question[];
  /** Heads that are cut. */
  readonly off: ReadonlySet<number>;
}

/** What the marks of a model with these heads cut are kept by. */
export const keyOf = (off: ReadonlySet<number>): string => [...off].sort((a, b) => a - b).join();

const turn = (milliseconds = 0) => new Promise((go) => setTimeout(go, milliseconds));

export class Asker {
  readonly #now: () => Exam | undefined;
  readonly #done: (exam: Exam, marks: Marks) => void;
  #asking = false;

  /**
   * @param now - what the stage shows at the moment.
   * @param done - hears what came of all questions.
   */
  constructor(now: () => Exam | undefined, done: (exam: Exam, marks: Marks) => void) {
    this.#now = now;
    this.#done = done;
  }

  /** Asks what is shown, and what will be, until all of it has been asked. */
  async ask(): Promise<void> {
    if (this.#asking) return;
    this.#asking = true;
    for (;;) {
      const exam = this.#now();
      if (!exam || exam.questions.length === 0 || exam.snapshot.marks.has(keyOf(exam.off))) break;
      const began = performance.now();
      const marks = await this.#all(exam);
      exam.snapshot.marks.set(keyOf(exam.off), marks);
      this.#done(exam, marks);
      // Where the machine computes on its CPU, training needs it too.
      await turn(Math.min(REST, performance.now() - began));
    }
    this.#asking = false;
  }

  async #all({ snapshot, questions, off }: Exam): Promise<Marks> {
    const { weights } = snapshot;
    const right: boolean[] = [];
    let stops = 0;
    let began = performance.now();
    for (const question of questions) {
      const given = answer(weights, question, off);
      right.push(given.right);
      if (given.stops) stops++;
      if (performance.now() - began < TURN) continue;
      await turn();
      began = performance.now();
    }
    return { right, stops };
  }
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
