/** A run as the stage shows it: its curve, and its weights every few steps. */
import { meanAt } from "../mean.ts";
import type { RunSettings } from "../presets.ts";
import type { TaskName } from "../tasks/index.ts";
import { type Marks, type Question, rightOf } from "./ask.ts";
import { type Shape, type Weights, weightsOf, widened } from "./weights.ts";

/** Bytes that all snapshots of a run take at most. */
const MOST = 64e6;
/** Milliseconds between two snapshots of a quick run, of one whose model is large, and of a long one of which few stay. */
const [REST, LONG_REST, WATCHED] = [60, 120, 200];
/** Bytes of a snapshot from which on that is so. */
const LARGE = 1e6;
/** Snapshots of a run that trains which are kept for moments in which no new ones come. */
const KEPT_BACK = 6;
/** The newest ones, which are seen one by one whether they stay or not. */
const RECENT = KEPT_BACK + 2;

/** The model after a step. */
export class Snapshot {
  readonly step: number;
  readonly shape: Shape;
  /** Its weights in 16 bits. */
  readonly halves: Uint16Array;
  #weights: WeakRef<Weights> | undefined;
  /** How it did, by the heads that were cut. */
  readonly marks = new Map<string, Marks>();
  /** Whether it was asked, or is. */
  asked = false;

  constructor(step: number, shape: Shape, halves: Uint16Array) {
    this.step = step;
    this.shape = shape;
    this.halves = halves;
  }

  get bytes(): number {
    return this.halves.byteLength;
  }

  /** Its weights, each rounded to 16 bits. */
  get weights(): Weights {
    const kept = this.#weights?.deref();
    if (kept) return kept;
    const weights = weightsOf(this.shape, widened(this.halves));
    this.#weights = new WeakRef(weights);
    return weights;
  }
}

export class Track {
  /** A recording was made before; the visitor's own run is not. */
  readonly recorded: boolean;
  /** What the recording says of itself. */
  readonly about: string;
  readonly task: TaskName | undefined;
  /** What it learns, as the caption calls it. */
  readonly name: string;
  readonly questions: readonly Question[];
  /** A text for the loom. */
  readonly example: string;
  /** What a link to it needs: its settings, and what it learns by its name in the form. */
  readonly settings: RunSettings;
  readonly source: string;
  /** Whether it began with a model of the visitor's own files, which no link has. */
  readonly pretrained: boolean;
  /** Steps that are planned. */
  steps: number;
  /** The loss of each step that is known. */
  readonly losses: [step: number, loss: number][] = [];
  /** The validation losses that are known: those on text that training never sees. */
  readonly validations: [step: number, loss: number][] = [];
  /** By step, the first one first. */
  readonly snapshots: Snapshot[] = [];
  /** Steps between two snapshots at least. */
  #spacing = 1;
  /** Milliseconds that training took so far. */
  milliseconds = 0;
  ended = false;

  constructor(about: {
    recorded?: string;
    task: TaskName | undefined;
    name: string;
    steps: number;
    questions: readonly Question[];
    example: string;
    settings: RunSettings;
    source: string;
    pretrained: boolean;
  }) {
    this.recorded = about.recorded !== undefined;
    this.about = about.recorded ?? "";
    this.task = about.task;
    this.name = about.name;
    this.steps = about.steps;
    this.questions = about.questions;
    this.example = about.example;
    this.settings = about.settings;
    this.source = about.source;
    this.pretrained = about.pretrained;
  }

  /** The newest step with weights. */
  get newest(): number {
    return this.snapshots.at(-1)?.step ?? -1;
  }

  /**
   * The step up to which a run that plays is shown. One that trains stands still while it is asked, kept, or writes a
   * sample: the last snapshots are kept back for that, and come one by one.
   *
   * @param at - the step of the handle.
   * @param next - whether it is time for the next snapshot.
   */
  ready(at: number, next: boolean): number {
    if (this.recorded) return this.newest;
    const { snapshots } = this;
    const kept = snapshots.at(-1 - KEPT_BACK)?.step ?? -1;
    const following = next ? snapshots.find(({ step }) => step > at)?.step : undefined;
    return Math.max(at, kept, following ?? -1);
  }

  /**
   * Whether a snapshot of this step is wanted: each of the first ones, later every few, and in a quick run so many that it
   * trains most of the time. Who watches a long run sees five a second, though few of them stay.
   *
   * @param since - milliseconds since the one before.
   */
  due(step: number, since = Number.POSITIVE_INFINITY): boolean {
    const gap = step - this.newest;
    const large = (this.snapshots[0]?.bytes ?? 0) > LARGE;
    if (gap <= 0 || (step > (large ? 16 : 63) && since < (large ? LONG_REST : REST))) return false;
    if (step <= 16) return true;
    return gap >= (step < 64 ? 2 : 3) && (gap >= this.#spacing || since >= WATCHED);
  }

  /** Adds a snapshot. Where all take too much, every second one of those between goes. */
  add(snapshot: Snapshot): void {
    while (this.newest >= snapshot.step) this.snapshots.pop();
    this.snapshots.push(snapshot);
    this.#thin();
    if (this.snapshots.length * snapshot.bytes <= MOST) return;
    this.#spacing *= 2;
    const last = this.snapshots.length - 1;
    const kept = this.snapshots.filter((_, at) => at === 0 || at === last || at % 2 === 1);
    this.snapshots.splice(0, this.snapshots.length, ...kept);
  }

  /** What was for those who watch goes once it is no recent one any more, unless it was asked. */
  #thin(): void {
    const at = this.snapshots.length - 1 - RECENT;
    const [before, one] = [this.snapshots[at - 1], this.snapshots[at]];
    if (!before || !one || one.asked || one.step - before.step >= this.#spacing) return;
    this.snapshots.splice(at, 1);
  }

  /** A running mean of the losses without lag: of those around each step. `points` is the most of them. */
  curve(points: number): [step: number, mean: number][] {
    const gap = Math.max(1, Math.ceil(this.losses.length / points));
    const losses = this.losses.map(([, loss]) => loss);
    const means: [number, number][] = [];
    for (let at = 0; at < losses.length; at += gap) {
      means.push([this.losses[at]![0], meanAt(losses, at)]);
    }
    return means;
  }

  /** The top of the curve's picture. */
  get highest(): number {
    return Math.max(1, ...this.losses.slice(0, 3).map(([, loss]) => loss));
  }

  /** Adds a loss. Steps that are done twice replace what came before. */
  learn(step: number, loss: number): void {
    while ((this.losses.at(-1)?.[0] ?? -1) >= step) this.losses.pop();
    this.losses.push([step, loss]);
  }

  /** Adds a validation loss. */
  validate(step: number, loss: number): void {
    while ((this.validations.at(-1)?.[0] ?? -1) >= step) this.validations.pop();
    this.validations.push([step, loss]);
  }

  /** The last snapshot that is not after a step. */
  upTo(step: number): Snapshot | undefined {
    return this.snapshots.findLast((one) => one.step <= step) ?? this.snapshots[0];
  }

  /** How the last model up to a step did that was asked. */
  asked(step: number, key: string): { snapshot: Snapshot; marks: Marks } | undefined {
    const snapshot = this.snapshots.findLast((one) => one.step <= step && one.marks.has(key));
    return snapshot && { snapshot, marks: snapshot.marks.get(key)! };
  }

  /** No step follows. */
  end(): void {
    this.ended = true;
    if (this.newest > 0) this.steps = this.newest;
  }

  /** Moments that have a name, as far as the questions were asked. */
  get moments(): { step: number; name: string }[] {
    const asked = this.snapshots.flatMap(({ step, marks }) => {
      const found = marks.get("");
      return found
        ? [{ step, right: rightOf(found), stops: found.stops, of: found.right.length }]
        : [];
    });
    const moments: { step: number; name: string }[] = [];
    const first = (
      name: (one: (typeof asked)[0]) => string,
      is: (one: (typeof asked)[0]) => boolean,
    ) => {
      const one = asked.find(is);
      if (one) moments.push({ step: one.step, name: name(one) });
    };
    if (this.snapshots[0]?.step === 0) moments.push({ step: 0, name: "noise" });
    if (this.task)
      first(
        () => "learns to stop",
        ({ stops, of }) => stops * 2 >= of,
      );
    first(
      () => "first right",
      ({ right }) => right > 0,
    );
    first(
      () => "half right",
      ({ right, of }) => right * 2 >= of,
    );
    const best = asked.at(-1);
    if (best && best.right > 0 && (this.ended || this.recorded)) {
      moments.push({ step: best.step, name: `${best.right} right` });
    }
    return moments.sort((a, b) => a.step - b.step);
  }
}
