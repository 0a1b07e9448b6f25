/** Adds to a raw trainer its count of steps and its data, and makes each step and each save through the handle. */

import type { Data } from "./data.js";
import { DataIdentity } from "./data-identity.js";
import { throwIfAborted, toError } from "./error.js";
import type { InnerModel } from "./internal.js";
import { deferredPart } from "./lazy.js";
import { metricsOf, withCut } from "./metrics.js";
import { report, reported } from "./progress.js";
import type { RawHandle } from "./raw-handle.js";
import type { RawMetrics, RawTrainer } from "./raw-types.js";
import type { TrainerRecovery } from "./recovery/trainer-recovery.js";
import type { Evaluated, Runnable } from "./run.js";
import type { RunOptions } from "./run-types.js";
import type { Keeping, RunHandle, TrainerSaveOptions } from "./save-types.js";
import { Cuts } from "./text/cuts.js";
import type { RawOptions } from "./trainer-options.js";
import type { EvaluateOptions, Evaluation, StepMetrics, TrainerFiles } from "./trainer-types.js";

/** What the steps are of. */
interface Parts {
  readonly handle: RawHandle<RawTrainer>;
  /** What is trained. */
  readonly of: InnerModel;
  /** What steps are repeated by after a lost device. */
  readonly recovery: TrainerRecovery | undefined;
  /** Steps done before. */
  readonly count: number;
  /** Whether the length of the schedule is the caller's choice, not that of `run`. */
  readonly fixedTotal: boolean;
}

export class TrainerSteps implements Runnable {
  readonly identity = new DataIdentity();
  readonly fixedTotal: boolean;
  readonly #handle: RawHandle<RawTrainer>;
  readonly #recovery: TrainerRecovery | undefined;
  readonly #of: InnerModel;
  readonly #tokensPerStep: number;
  /** What counts the documents that are cut, of each dataset that was drawn from. */
  readonly #cuts = new Map<Data, { readonly cuts: Cuts | undefined; forget(): void }>();
  #count: number;

  constructor({ handle, of, recovery, count, fixedTotal }: Parts) {
    this.#handle = handle;
    this.#of = of;
    this.#recovery = recovery;
    this.#count = count;
    this.fixedTotal = fixedTotal;
    const options = handle.callSync((raw) => JSON.parse(raw.options()) as RawOptions);
    this.#tokensPerStep = options.tokensPerStep;
  }

  /** Optimizer steps whose metrics have arrived, with those before a resume. */
  get count(): number {
    return this.#count;
  }

  /** Changes an option between two steps, or between two parts of one. */
  change(change: (raw: RawTrainer) => void): void {
    this.#handle.callSync(change);
    this.#recovery?.changed(change);
  }

  /**
   * A step, or a part of one.
   *
   * @param stop - asked between its parts.
   * @param data - what it draws from.
   * @param own - whether its loss is of an objective of its own, of any size.
   */
  train(
    begin: (raw: RawTrainer, stop: () => boolean) => Promise<RawMetrics>,
    signal?: AbortSignal,
    stop = () => false,
    data?: Data,
    own?: boolean,
  ): Promise<StepMetrics> {
    return this.#handle.run(
      async (raw) =>
        this.#note(
          (await this.#recovery?.step(begin, stop, signal, data, own)) ??
            metricsOf(await begin(raw, stop)),
        ),
      signal,
    );
  }

  /** A step on the data's next batches, which the signal and `free` also end between its micro-steps. */
  async step(data: Data, signal: AbortSignal | undefined): Promise<StepMetrics> {
    const stop = () => signal?.aborted === true || this.#handle.freed;
    const begin = async (raw: RawTrainer, stopped: () => boolean) => {
      const cuts = this.#cutsOf(data);
      cuts?.begin();
      const metrics = await raw.stepDataset(this.raw(data), stopped);
      this.identity.note(data);
      return withCut(metrics, cuts?.count);
    };
    try {
      return await this.train(begin, signal, stop, data);
    } catch (error) {
      throwIfAborted(signal, "run");
      throw error;
    }
  }

  /** Queues a step on the data's next batch, without holding up the operations after it. */
  queue(data: Data): Promise<{ readonly done: Promise<StepMetrics> }> {
    return data.during(() =>
      this.#handle.run((raw) => {
        const begin = (by: RawTrainer) => {
          const cuts = this.#cutsOf(data);
          cuts?.begin();
          const numbers = this.#of.runtime.module.guarded(() => by.queueDataset(this.raw(data)));
          const cut = cuts?.count; // the batch is drawn by now, and the next one before the numbers are there
          return cut ? numbers.then((own) => withCut(own, cut)) : numbers;
        };
        const queued = this.#recovery?.queue(begin, data) ?? begin(raw).then(metricsOf);
        this.identity.note(data);
        const done = queued.then(
          (metrics) => this.#note(metrics),
          (error: unknown) => {
            void this.#handle.raw;
            throw toError(error);
          },
        );
        return { done };
      }),
    );
  }

  /** The mean loss over the data's validation split, or over all of it. */
  evaluate(data: Data, { averaged, all, ...options }: EvaluateOptions): Promise<Evaluation> {
    const { signal } = options;
    const evaluate = async (raw: RawTrainer) => {
      const by = this.raw(data, all);
      const total = raw.evaluationBatches(by);
      let sum = 0;
      let tokens = 0;
      for (let index = 0; index < total; index++) {
        throwIfAborted(signal, "evaluate");
        report(options, { loaded: index, total, stage: "evaluate" });
        const [nats = 0, counted = 0] = await raw.evaluateBatch(by, index);
        sum += nats;
        tokens += counted;
      }
      report(options, { loaded: total, total, stage: "evaluate" });
      await reported(options);
      return { loss: sum / tokens, tokens };
    };
    return data.during(() =>
      this.#handle.run(
        async (raw) =>
          averaged ? (await deferredPart()).exchanged(raw, () => evaluate(raw)) : evaluate(raw),
        signal,
      ),
    );
  }

  /** The module's side of the data, whose conversations have to fit into a step. */
  raw(data: Data, all?: boolean) {
    data.expectFits(this.#tokensPerStep);
    const { module } = this.#of.runtime;
    return all ? data.whole(module) : data.raw(module, this.#cutsOf(data));
  }

  prepare(data: Data, evaluated: Evaluated, options: RunOptions): void {
    const { stepsAhead = 0, evaluateEvery, dataChanged } = options;
    this.raw(data);
    if (!dataChanged) this.identity.expectSame(data, this.#tokensPerStep);
    this.#handle.callSync((raw) => {
      if (stepsAhead > 0) raw.expectWholeSteps();
      if (evaluateEvery) raw.evaluationBatches(this.raw(evaluated.data, evaluated.all));
    });
  }

  begun(): number {
    return this.#handle.callSync((raw) => raw.steps());
  }

  told(metrics: StepMetrics): StepMetrics {
    return this.#recovery?.told(metrics) ?? metrics;
  }

  good(): string | undefined {
    return this.#recovery?.good();
  }

  async checkpoint(to: RunHandle, keeping: Keeping, signal?: AbortSignal): Promise<void> {
    await this.save(signal ? { to, signal } : { to }, keeping);
  }

  /** Saves it all, or where no device comes any more the last snapshot. The options are checked. */
  save(options: TrainerSaveOptions, keeping: Keeping = {}): Promise<TrainerFiles | undefined> {
    const { handle, names, notes } = this.#of;
    const added = () => ({ totalStepsGiven: this.fixedTotal, ...this.identity.state });
    const save = (kept?: (number: number) => void) =>
      this.#handle.run(async (moments) => {
        const { configWithBase, save: saveFiles } = await deferredPart();
        const { raw: weights } = handle;
        const config = configWithBase(weights.config(), notes);
        const saved = { names, config, weights, generation: notes.generation };
        const trainer = {
          moments,
          state: () => moments.state(),
          added: added(),
          keeping: { ...keeping, kept },
        };
        return saveFiles<TrainerFiles | undefined>(options, saved, trainer);
      }, options.signal);
    return this.#recovery?.saveOrSnapshot(save, options, added(), keeping.keep) ?? save();
  }

  /** Lets go of what it has of datasets. */
  free(): void {
    for (const [data, { cuts, forget }] of this.#cuts) {
      if (cuts) data.drop(cuts);
      forget();
    }
    this.#cuts.clear();
  }

  #cutsOf(data: Data): Cuts | undefined {
    if (!this.#cuts.has(data)) {
      const length = Math.min(data.draws.sequenceLength, this.#tokensPerStep);
      const cuts = Cuts.of(data.store(true), length);
      // It reads from the tokens, whose memory a freed dataset gives back.
      const forget = data.whenReleased(() => this.#cuts.delete(data));
      this.#cuts.set(data, { cuts, forget });
    }
    return this.#cuts.get(data)?.cuts;
  }

  /**
   * Without a `totalSteps` of the caller the schedule reaches at least as far as runs were asked to, so
   * that one cut short and continued keeps its schedule.
   *
   * @returns what undoes it.
   */
  reach(last: number): () => void {
    const before = this.#totalSteps();
    if (this.fixedTotal || (before ?? this.#count) >= last) return () => {};
    this.change((raw) => raw.setTotalSteps(last));
    return () => {
      // Unless another run has lengthened it.
      if (this.#handle.freed || this.#totalSteps() !== last) return;
      this.change((raw) => raw.setTotalSteps(before));
    };
  }

  /** The length of the schedule that the caller chose. */
  end(): number {
    return (this.fixedTotal && this.#totalSteps()) || Infinity;
  }

  #totalSteps(): number | undefined {
    return (
      this.#handle.callSync((raw) => JSON.parse(raw.options()) as RawOptions).totalSteps ??
      undefined
    );
  }

  #note(metrics: StepMetrics): StepMetrics {
    // Of two steps on their way, the later one's metrics may be read first.
    this.#count = Math.max(this.#count, metrics.step);
    return metrics;
  }
}
