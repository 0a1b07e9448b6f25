/** The model of the page's run as a pupil: what it goes on from, and what a visitor has marked. */
import { TinyloomError } from "tinyloom/worker";
import { tally } from "../../stories/score.ts";
import type { Lab } from "../lab.ts";
import type { RunStore } from "../run-store.ts";
import type { Training } from "../training.ts";
import { baseOfRun } from "../tune/base-model.ts";
import { beginningsOf, unitOf } from "./beginnings.ts";
import { RULES, type Rule } from "./rules.ts";
import { type Marked, Teaching, type Written } from "./teaching.ts";

/** Bytes at the end of a text that beginnings are taken from. Training sees all but the last tenth of a text. */
const READ = 200_000;
/** The most samples to mark, and those that are never marked: what has changed is measured on them. */
export const [MARKED, UNMARKED] = [40, 64];
/** Beginnings without which nothing can be measured. */
const FEWEST = 12;
/** Samples that are written at once. */
const AT_ONCE = 8;
/** Seed of the samples that nobody marks. */
const SEED = 1_000;

export class Pupil {
  readonly training: Training;
  readonly teaching: Teaching;
  readonly toMark: readonly string[];
  readonly unmarked: readonly string[];
  readonly #marks = new Map<Written, boolean>();
  readonly #samples: Written[] = [];
  /** Steps of the run when its model was copied. */
  readonly step: number;
  #before: Written[] | undefined;

  private constructor(training: Training, teaching: Teaching, beginnings: readonly string[]) {
    this.training = training;
    this.step = training.step;
    this.teaching = teaching;
    const marked = Math.min(MARKED, Math.floor(beginnings.length / 2));
    this.toMark = beginnings.slice(0, marked);
    this.unmarked = beginnings.slice(marked, marked + UNMARKED);
  }

  /**
   * Loads a copy of the run's model, from its newest checkpoint.
   *
   * @throws TinyloomError `invalid-options` where the text has too few sentences, and what loading throws.
   */
  static async of(
    { lab, store }: { readonly lab: Lab; readonly store: RunStore },
    training: Training,
    signal: AbortSignal,
  ): Promise<Pupil> {
    const { settings, text, run } = training;
    const read = await text.bytes.slice(-READ).text();
    // A text that is longer is cut there, in a line and maybe in a letter.
    const end = text.bytes.size > READ ? read.slice(read.indexOf("\n") + 1) : read;
    const unit = unitOf(end);
    const beginnings = beginningsOf(end, unit, settings.seed);
    if (beginnings.length < FEWEST) {
      throw new TinyloomError(
        "invalid-options",
        `the end of the text has ${beginnings.length} different ${unit}s; at least ${FEWEST} are needed: train on a longer text`,
      );
    }
    const base = await baseOfRun(lab, store, run.name, training);
    const model = await base.load("f32", signal, () => {});
    const { codec, context } = base;
    const { dataset } = training;
    const taught = { lab, codec, unit, context, dataset, seed: settings.seed };
    return new Pupil(training, await Teaching.begin(taught, model), beginnings);
  }

  /** What is looked at in its samples: all rules, and of the stories the grammar. */
  get rules(): readonly Rule[] {
    const { judge } = this.training.text;
    if (!judge) return RULES;
    const holds = (text: string) => tally(judge.judge(text, true)).grammatical > 0;
    return [...RULES, { name: "grammar", label: "is a sentence of the grammar", holds }];
  }

  /** Whether the run has trained on since its model was copied. */
  get stale(): boolean {
    return this.training.step !== this.step;
  }

  /** Whether there is something to lose: marks, or what it has learned. */
  get begun(): boolean {
    return this.#marks.size > 0 || this.teaching.step > 0;
  }

  get samples(): readonly Written[] {
    return this.#samples;
  }

  get full(): boolean {
    return this.#samples.length >= this.toMark.length;
  }

  get marks(): readonly Marked[] {
    return [...this.#marks].map(([sample, good]) => ({ ...sample, good }));
  }

  markOf(sample: Written): boolean | undefined {
    return this.#marks.get(sample);
  }

  /** Marks a sample, or takes its mark away. */
  mark(sample: Written, good: boolean | undefined): void {
    if (good === undefined) this.#marks.delete(sample);
    else this.#marks.set(sample, good);
  }

  /** Some more samples of the model as it is, each after a beginning of its own. */
  async more(signal: AbortSignal): Promise<Written[]> {
    const from = this.#samples.length;
    const beginnings = this.toMark.slice(from, from + AT_ONCE);
    const { seed } = this.training.settings;
    const written = await this.teaching.write(beginnings, {
      adapted: false,
      seed: seed + from,
      signal,
    });
    this.#samples.push(...written);
    return written;
  }

  /** What it writes after the beginnings that nobody marks: before it was taught, and as it is. */
  async both(
    signal: AbortSignal,
  ): Promise<{ before: readonly Written[]; after: readonly Written[] }> {
    const write = (adapted: boolean) =>
      this.teaching.write(this.unmarked, { adapted, seed: SEED, signal });
    this.#before ??= await write(false);
    return { before: this.#before, after: await write(true) };
  }

  async free(): Promise<void> {
    await this.teaching.free();
  }
}
