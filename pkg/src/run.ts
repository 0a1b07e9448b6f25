/** A run of a trainer over a dataset. */

import type { Data } from "./data.js";
import { type TinyloomError, throwIfAborted, toError } from "./error.js";
import { datasets } from "./internal.js";
import { deferredPart } from "./lazy.js";
import { nonFinite } from "./non-finite.js";
import { abortSignal, check, flag, integer, invalid, object, type Rules } from "./options.js";
import type { RunSaver } from "./run-saver.js";
import type { RunOptions } from "./run-types.js";
import type { Keeping, RunHandle } from "./save-types.js";
import { stored } from "./stored-runs.js";
import type {
  CheckpointOptions,
  EvaluateOptions,
  Evaluation,
  StepMetrics,
} from "./trainer-types.js";

const MAX_U32 = 0xffff_ffff;

const RULES: Rules<RunOptions> = {
  steps: integer(1, MAX_U32),
  until: integer(1, MAX_U32),
  signal: abortSignal,
  evaluateEvery: integer(1, MAX_U32),
  evaluateOn: (value) => (datasets.find(value) ? undefined : "a Dataset"),
  maxSkipped: integer(1, MAX_U32),
  stepsAhead: integer(0, 16),
  dataChanged: flag,
  checkpoint: object,
};

const CHECKPOINT: Rules<CheckpointOptions> = {
  run: (value) => (stored.find(value) ? undefined : "what runs.create or runs.open gave"),
  every: integer(1, MAX_U32),
  keep: integer(1, 1000),
  keepBest: flag,
  onAbort: flag,
};

/** The options of `Trainer.run`, checked. */
export function runOptions(options: unknown): RunOptions {
  const given = check<RunOptions>("run", options, RULES);
  const into = given.checkpoint;
  const chosen = into
    ? { ...given, checkpoint: check("run: checkpoint", into, CHECKPOINT, "run") }
    : given;
  if (chosen.steps !== undefined && chosen.until !== undefined) {
    throw invalid(
      `run: steps is ${chosen.steps} and until is ${chosen.until}; give one of them: steps counts this ` +
        "run's own, until the trainer's",
    );
  }
  const asks = chosen.evaluateOn ? "evaluateOn" : chosen.checkpoint?.keepBest && "keepBest";
  if (asks && !chosen.evaluateEvery) {
    throw invalid(
      `run: ${asks} needs evaluateEvery, the number of steps from one evaluation to the next`,
    );
  }
  // A run that is closed is refused before the first step, not at the first save.
  stored.find(chosen.checkpoint?.run)?.target(undefined);
  return chosen;
}

/** What a run needs of its trainer. */
export interface Runnable {
  /** Refuses what the run would stumble over, before anything is changed for it. */
  prepare(data: Data, evaluated: Evaluated, options: RunOptions): void;
  /** Steps done, with those on their way. */
  begun(): number;
  /** Makes the schedule reach that step, unless the caller has given its length; gives the undoing. */
  reach(last: number): () => void;
  /** The step at which a run without steps and until ends. */
  end(): number;
  step(data: Data, signal: AbortSignal | undefined): Promise<StepMetrics>;
  /** Queues a step in its turn; `done` is of its metrics. */
  queue(data: Data): Promise<{ readonly done: Promise<StepMetrics> }>;
  evaluate(data: Data, options: EvaluateOptions): Promise<Evaluation>;
  /** The metrics of a step that is given out, with what there is to tell of a lost device. */
  told(metrics: StepMetrics): StepMetrics;
  /** Where good weights are to be had, as advice. */
  good(): string | undefined;
  /** Saves into a stored run. */
  checkpoint(run: RunHandle, keeping: Keeping, signal?: AbortSignal): Promise<void>;
}

/** What evaluations are of. */
export interface Evaluated {
  readonly data: Data;
  /** Whether all of it is for that, and not its validation split alone. */
  readonly all: boolean;
}

/** One run, on from its first step to its end. */
export class Run {
  readonly #trainer: Runnable;
  readonly #data: Data;
  readonly #evaluated: Evaluated;
  /** Lets go of the data. */
  readonly release: () => void;
  readonly #options: RunOptions;
  /** Steps that are on their way, the oldest first. */
  readonly #queued: Promise<StepMetrics>[] = [];
  /** Its own steps begun, and those that are done. */
  #begun = 0;
  #done = 0;
  #ended = false;

  constructor(trainer: Runnable, data: Data, options: RunOptions) {
    this.#trainer = trainer;
    const { evaluateOn } = options;
    const evaluated = evaluateOn ? datasets.of(evaluateOn) : data;
    void evaluated.store(); // code "freed"
    this.#data = data;
    this.#evaluated = { data: evaluated, all: evaluateOn !== undefined };
    const held = [data.hold(), evaluated.hold()];
    this.release = () => {
      for (const release of held) release();
    };
    this.#options = options;
  }

  /** Whether it may still begin steps. A run whose signal has fired does not, even if nobody asks it. */
  get on(): boolean {
    return !this.#ended && this.#options.signal?.aborted !== true;
  }

  /** Waits for the steps that are queued, then lets go of the data; gives the metrics of those that were done. */
  async settle(): Promise<StepMetrics[]> {
    const queued = await Promise.allSettled(this.#queued);
    this.release();
    return queued.flatMap((one) => (one.status === "fulfilled" ? [one.value] : []));
  }

  /** The steps, one after the other. */
  async *steps(): AsyncGenerator<StepMetrics, void, undefined> {
    const { signal, evaluateEvery, maxSkipped = 3, checkpoint } = this.#options;
    const { every = 100 } = checkpoint ?? {};
    let undo = () => {};
    let good: number | undefined;
    let saver: RunSaver | undefined;
    let stopped = true; // by its signal, or since its loop was left
    try {
      throwIfAborted(signal, "run");
      this.#trainer.prepare(this.#data, this.#evaluated, this.#options);
      if (checkpoint) saver = await this.#saver(checkpoint);
      const last = this.#last();
      if (Number.isFinite(last)) undo = this.#trainer.reach(last);
      let [seen, skipped] = [this.#trainer.begun(), 0];
      while (this.#more() || this.#queued.length > 0) {
        throwIfAborted(signal, "run");
        const due = evaluateEvery ? nextMultiple(seen, evaluateEvery) : Infinity;
        const saved = checkpoint ? nextMultiple(seen, every) : Infinity;
        let metrics = await this.#next(Math.min(due, saved));
        seen = metrics.step;
        const ended = !this.#more() && this.#queued.length === 0;
        if (seen >= due || (evaluateEvery && ended)) {
          const { data, all } = this.#evaluated;
          const { loss } = await this.#trainer.evaluate(data, { all, ...(signal && { signal }) });
          metrics = { ...metrics, validationLoss: loss };
        }
        metrics = this.#trainer.told(metrics);
        await saver?.stepped(metrics, seen >= saved || ended);
        yield metrics;
        if (!metrics.skipped) good = metrics.step;
        skipped = metrics.skipped ? skipped + 1 : 0;
        if (skipped >= maxSkipped) {
          throw nonFinite(metrics, skipped, good, this.#trainer.good());
        }
      }
      stopped = false;
    } catch (error) {
      stopped = toError(error).code === "aborted";
      throw error;
    } finally {
      // What was queued is done all the same, and counts; its first error was thrown.
      const queued = await this.settle();
      this.#ended = true;
      if (this.#done === 0) undo();
      if (stopped) await saver?.stopped(queued);
    }
  }

  async #saver(options: CheckpointOptions): Promise<RunSaver> {
    const { data, all } = this.#evaluated;
    const { signal, dataChanged: fresh = false } = this.#options;
    const { RunSaver } = await deferredPart();
    const { validationFraction, sequenceLength } = data.draws;
    const parts = {
      save: this.#trainer.checkpoint.bind(this.#trainer),
      signal,
      data: [data.hash, all ? 1 : validationFraction, sequenceLength].join(),
      fresh,
    };
    return RunSaver.of(options, parts, this.#trainer.begun());
  }

  /** The trainer's count at which the run ends if no other step comes between. */
  #last(): number {
    const { steps, until } = this.#options;
    if (steps !== undefined) return this.#trainer.begun() + steps;
    return until ?? this.#trainer.end();
  }

  /** Whether the run has another step to begin. */
  #more(): boolean {
    const { steps, until } = this.#options;
    if (steps !== undefined) return this.#begun < steps;
    return this.#trainer.begun() < (until ?? this.#trainer.end());
  }

  /** The next step's metrics; no step is queued past the one numbered `due`. */
  async #next(due: number): Promise<StepMetrics> {
    const { signal, stepsAhead = 0 } = this.#options;
    if (stepsAhead === 0) {
      this.#begun += 1;
      const metrics = await this.#trainer.step(this.#data, signal);
      this.#done += 1;
      return metrics;
    }
    const free = () => this.#queued.length === 0 || this.#trainer.begun() < due;
    while (this.#queued.length <= stepsAhead && this.#more() && free()) {
      this.#begun += 1;
      const { done } = await this.#trainer.queue(this.#data);
      // Its error is reported where it is awaited.
      done.then(() => (this.#done += 1)).catch(() => {});
      this.#queued.push(done);
    }
    const metrics = await (this.#queued[0] as Promise<StepMetrics>).finally(() => {
      this.#queued.shift();
    });
    return metrics;
  }
}

/** Refuses a second run beside one that is on. */
export function alreadyOn(steps: number): TinyloomError {
  return invalid(
    `run: a run of this trainer is on, at step ${steps}; end it first: leave its loop with break, call ` +
      "return() on its iterator, or abort its signal",
  );
}

/** The first multiple of `every` after `step`. */
const nextMultiple = (step: number, every: number) => (Math.floor(step / every) + 1) * every;
