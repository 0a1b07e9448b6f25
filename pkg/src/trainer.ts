import { Adapter, makeAdapter } from "./adapter.js";
import type { With } from "./asked.js";
import type { LoadedRun } from "./checkpoint-loader.js";
import { type Dataset, dataOf } from "./dataset.js";
import { disposable } from "./dispose.js";
import type { CheckpointFiles, PickedFiles } from "./file-part.js";
import { openSource } from "./file-source.js";
import { expectMade, MADE } from "./inner.js";
import { type InnerModel, models, runtimes, trainers } from "./internal.js";
import { deferredPart } from "./lazy.js";
import { adoptModel, Model } from "./model.js";
import type { ModelConfig } from "./model-config.js";
import type { ModelFiles } from "./model-types.js";
import {
  anything,
  check,
  copied,
  flag,
  inspect,
  invalid,
  isA,
  type Rules,
  show,
} from "./options.js";
import { LONG, type LongOptions } from "./progress.js";
import { RawHandle } from "./raw-handle.js";
import type {
  Ask,
  RawMetrics,
  RawModel,
  RawModule,
  RawRuntime,
  RawTrainer,
  Seen,
} from "./raw-types.js";
import type { TrainerRecovery } from "./recovery/trainer-recovery.js";
import { alreadyOn, Run, runOptions } from "./run.js";
import type { RunOptions } from "./run-types.js";
import { expectRuntime, type Runtime } from "./runtime.js";
import { saveOptions } from "./save-options.js";
import {
  type DtypeOptions,
  MODEL_FILES,
  type RunHandle,
  type SaveOptions,
  type SaveTarget,
  STATE_FILES,
  type TrainerSaveOptions,
} from "./save-types.js";
import { toSomeTokens, toTokens } from "./tokens.js";
import { type RawOptions, type RawSchedule, TRAINER, toldOptions } from "./trainer-options.js";
import { TrainerSteps } from "./trainer-steps.js";
import type {
  Batch,
  EvaluateOptions,
  Evaluation,
  GradientBatch,
  PlanRow,
  ProfileRow,
  RateOptions,
  RateSearch,
  ResolvedTrainerOptions,
  Schedule,
  StateGradientBatch,
  StepMetrics,
  TrainerFiles,
  TrainerOptions,
} from "./trainer-types.js";
import { evaluated, watched } from "./watch.js";

const BATCH: Rules<Batch & GradientBatch> = {
  tokens: anything,
  targets: anything,
  documents: anything,
  targetWeights: anything,
  normalize: anything,
  temperature: anything,
  soft: anything,
  gradient: anything,
  gradientBy: anything,
};

/**
 * Trains a model, by default with AdamW. Training is deterministic: the same seed, data and adapter give the
 * same bits, also across `save()` and `resume()` where `totalSteps` fixes the schedule of learning rates.
 *
 * @example
 * ```ts
 * const trainer = await Trainer.create(model, { learningRate: 1e-3 });
 * for await (const m of trainer.run(dataset, { steps: 300 })) console.log(m.step, m.loss);
 * ```
 */
export class Trainer {
  readonly #handle: RawHandle<RawTrainer>;
  readonly #steps: TrainerSteps;
  /** The last run begun. */
  #run: Run | undefined;
  /** What its steps are repeated by after a lost device. */
  readonly #recovery: TrainerRecovery | undefined;
  /** The model being trained, or that under the adapter; usable between steps. */
  readonly model: Model;
  /** The adapter being trained, of a trainer of one; usable between steps. */
  readonly adapter: Adapter | undefined;
  readonly #of: InnerModel;

  /** @param options - as JSON, unless it was resumed with what it trains. */
  private constructor(
    made: typeof MADE,
    trained: Model | Adapter,
    raw: RawTrainer,
    step: number,
    fixedTotal: boolean,
    options?: string,
  ) {
    expectMade(made, "Trainer");
    this.#of = models.of(trained);
    const { queue, recovery, own, runtime } = this.#of;
    this.adapter = isA(trained, Adapter) ? trained : undefined;
    this.model = this.adapter?.model ?? (trained as Model);
    this.#handle = new RawHandle("Trainer", raw, queue, runtime.module);
    this.#recovery = recovery && runtime.recovery?.trainer(recovery, this.#handle, options);
    this.#steps = new TrainerSteps({
      handle: this.#handle,
      of: this.#of,
      recovery: this.#recovery,
      count: step,
      fixedTotal,
    });
    own(this);
    trainers.set(this, {
      handle: this.#handle,
      activationBytes: () => {
        const [shared = 0, unshared = 0] = this.#handle.callSync((own) => own.activationBytes());
        return { shared, unshared };
      },
    });
  }

  /**
   * A trainer for the model, or for an adapter of one; allocates gradients, moments and activations.
   *
   * @param trained - an adapter's trainer leaves the model as it is.
   * @param options - also `signal`, which ends the call between two kernels, and `onProgress`.
   * @throws {@link TinyloomError} `invalid-options`, `limit-exceeded`, `out-of-memory`, `aborted`.
   */
  static create(
    trained: Adapter,
    options?: TrainerOptions & LongOptions,
  ): Promise<With<Trainer, "adapter">>;
  static create(trained: Model | Adapter, options?: TrainerOptions & LongOptions): Promise<Trainer>;
  static async create(
    trained: Model | Adapter,
    options: TrainerOptions & LongOptions = {},
  ): Promise<Trainer> {
    if (!isA(trained, Model) && !isA(trained, Adapter)) {
      throw invalid(`Trainer.create takes a Model or an Adapter first, not ${show(trained)}`);
    }
    const { long, json, fixedTotal } = toldOptions("Trainer.create", options);
    const { handle, runtime } = models.of(trained);
    return handle.run(async (raw) => {
      const { RawTrainer } = runtime.module;
      const create = (ask: Ask) => RawTrainer.create(raw, json, ask);
      const trainer = await watched("Trainer.create", long, create);
      const made = adopt(
        handle,
        trainer,
        () => new Trainer(MADE, trained, trainer, 0, fixedTotal, json),
      );
      await runtime.remember();
      return made;
    }, long.signal);
  }

  /**
   * Compiles the kernels of a trainer that has no model yet: while one is made, or its files load. `Trainer.create` with the
   * same options, on a model of this config, then compiles none of them. Nothing is allocated.
   *
   * @throws {@link TinyloomError} `invalid-config`, `invalid-options`, `limit-exceeded`, `out-of-memory`, `aborted`.
   *
   * @example
   * ```ts
   * const compiled = Trainer.prepare(runtime, config, options);
   * const model = await Model.create(runtime, config);
   * await compiled;
   * const trainer = await Trainer.create(model, options);
   * ```
   */
  static async prepare(
    runtime: Runtime,
    config: ModelConfig,
    options: TrainerOptions & LongOptions = {},
  ): Promise<void> {
    expectRuntime("Trainer.prepare", runtime);
    const { prepareTrainer } = await deferredPart();
    return prepareTrainer(runtimes.of(runtime), config, options);
  }

  /**
   * Continues from what {@link Trainer.save} returned, bit for bit on the same adapter. State, config,
   * headers and the GPU's memory are judged before a tensor is read.
   *
   * @param files - the saved files by name or as a page's picker gives them, or a base URL under which they lie, in Node
   * also a folder's `file:` URL; or a run of `tinyloom/storage`, whose newest whole checkpoint loads. Bytes are not
   * copied: they must not change until the promise settles.
   * @param on - a runtime; for a run that trained an adapter, the model under it, with the weights that it
   * had then: others are refused.
   * @throws {@link TinyloomError} `invalid-checkpoint` and what {@link Model.fromPretrained} throws.
   */
  static resume(
    on: Model,
    files: string | URL | CheckpointFiles | PickedFiles | RunHandle,
    options?: LongOptions,
  ): Promise<With<Trainer, "adapter">>;
  static resume(
    on: Runtime | Model,
    files: string | URL | CheckpointFiles | PickedFiles | RunHandle,
    options?: LongOptions,
  ): Promise<Trainer>;
  static async resume(
    on: Runtime | Model,
    files: string | URL | CheckpointFiles | PickedFiles | RunHandle,
    options: LongOptions = {},
  ): Promise<Trainer> {
    const chosen = check("Trainer.resume", options, LONG);
    if (isA(on, Model)) {
      const { resumeAdapter } = await deferredPart();
      const { adapter, made } = await resumeAdapter(makeAdapter, on, files, chosen);
      return Trainer.#from(adapter, made);
    }
    const runtime = on;
    expectRuntime("Trainer.resume", runtime, ", or the Model of an adapter's run");
    const source = openSource("Trainer.resume", files, chosen);
    const inner = runtimes.of(runtime);
    const load = async (raw: RawRuntime, module: RawModule, long: LongOptions, seen: Seen) => {
      const { loadRun } = await deferredPart();
      const loader = (config: string) => new module.RawLoader(raw, config);
      return loadRun({ module, source, names: MODEL_FILES, loader }, long, seen);
    };
    return inner.call(async (raw, module) => {
      const seen: Seen = { sum: 0 };
      const by = await load(raw, module, chosen, seen);
      const again = (on: RawRuntime, then: Seen) => load(on, module, {}, then);
      const model = adoptModel(runtime, by.model, raw, { again, seen, notes: seen.notes });
      return Trainer.#from(model, by);
    }, chosen.signal);
  }

  /**
   * Searches for a learning rate (Smith, arXiv:1506.01186): trains a copy while the rate grows from step to step. The
   * model or adapter itself, and its trainers, stay as they are to the bit. Host and GPU hold the copy meanwhile.
   *
   * @throws {@link TinyloomError} as {@link Model.save} and {@link Trainer.create}; `aborted`.
   */
  static async findLearningRate(
    trained: Model | Adapter,
    dataset: Dataset,
    options: RateOptions & LongOptions = {},
  ): Promise<RateSearch> {
    const data = dataOf(dataset);
    return data.during(async () => (await deferredPart()).findLearningRate(trained, data, options));
  }

  static async #from(trained: Model | Adapter, by: LoadedRun): Promise<Trainer> {
    const made = new Trainer(MADE, trained, by.trainer, by.progress.step, by.fixedTotal);
    made.#steps.identity.resume(by, by.progress.cursor);
    await made.#of.runtime.remember();
    return made;
  }

  /**
   * Optimizer steps done, skipped ones among them: those of `run`, of `step`, and of the runs before a
   * resume. With `stepsAhead` it counts those whose metrics have not been given out yet.
   */
  get steps(): number {
    return this.#steps.count;
  }

  /** The options in force, every default filled in. */
  get options(): ResolvedTrainerOptions {
    const options = this.#handle.callSync((raw) => JSON.parse(raw.options()) as RawOptions);
    const { minLearningRate } = this.schedule;
    return Object.freeze({ ...options, minLearningRate });
  }

  /** How the learning rate goes. */
  get schedule(): Schedule {
    const raw = this.#handle.callSync((trainer) => JSON.parse(trainer.schedule()) as RawSchedule);
    const { schedule: kind, ...rest } = raw;
    return Object.freeze({ kind, ...rest });
  }

  /**
   * The peak learning rate, which the schedule scales; a step's own rate is in its metrics. It may be
   * set while training: the next step to begin uses it, and saves keep it. Where no `minLearningRate`
   * was given, the end of the schedule stays a tenth of it.
   *
   * @throws {@link TinyloomError} `invalid-options`, also below a given `minLearningRate`.
   */
  get learningRate(): number {
    return this.schedule.learningRate;
  }

  set learningRate(learningRate: number) {
    const chosen = check("trainer.learningRate", { learningRate }, TRAINER, "learningRate");
    this.#steps.change((raw) => raw.setLearningRate(chosen.learningRate ?? Number.NaN));
  }

  /**
   * One optimizer step, or one micro-step of it with accumulation. A non-finite loss or gradient
   * norm leaves the weights as they were and gives `skipped: true`. It may be called while a run is on:
   * it comes between two of the run's steps.
   *
   * @param batch - also weights of targets, a temperature and soft targets, or a function that computes loss and gradient:
   * `docs/guides/objectives.md`.
   * @throws {@link TinyloomError} `invalid-tokens`, `invalid-options`.
   */
  async step(batch: Batch | GradientBatch | StateGradientBatch): Promise<StepMetrics> {
    const { tokens, targets, documents, ...more } = check<Partial<Batch & GradientBatch>>(
      "step",
      batch,
      BATCH,
    );
    const ids = toSomeTokens("tokens", tokens);
    const starts = documents === undefined ? undefined : toTokens("documents", documents);
    let begin: (raw: RawTrainer) => Promise<RawMetrics>;
    const own = Object.keys(more).length > 0;
    if (own) {
      const given = inspect("step", () => copied({ targets, ...more }));
      const on = { runtime: this.#of.runtime, ended: this.#handle.ended };
      begin = async (raw) => (await deferredPart()).stepBy(raw, ids, starts, given, on);
    } else {
      const wanted = toTokens("targets", targets);
      begin = (raw) => raw.step(ids, wanted, starts);
    }
    const none = undefined;
    return this.#steps.told(await this.#steps.train(begin, none, none, none, own));
  }

  /**
   * Trains on the dataset's next batches and yields each step's metrics. Leaving the loop, or the
   * signal, stops between two steps; a later `run` goes on where this one stopped. In the middle of
   * an accumulation the signal stops too, and the step begins again with the later `run`. A run that
   * ends before its first step leaves the schedule as it was.
   *
   * - A trainer has one run at a time, from the first step asked for to the end of its loop. A second
   *   one is refused meanwhile.
   * - A run whose iterator was dropped without `return()` stays on. The steps that it had queued are
   *   done and count. Its signal ends it too.
   * - `step` may be called beside a run. Its step counts in `trainer.steps` and in the schedule, but it
   *   is none of the run's `steps`. In an accumulation it is one of the micro-steps of the run's step.
   *
   * @throws {@link TinyloomError} `invalid-options`, also for a document that does not fit into a step;
   * `aborted`, and `non-finite` after `maxSkipped` skipped steps in a row.
   */
  run(dataset: Dataset, options: RunOptions = {}): AsyncGenerator<StepMetrics, void, undefined> {
    return this.#begin(
      dataset,
      evaluated(() => runOptions(options)),
    );
  }

  async *#begin(dataset: Dataset, options: () => RunOptions) {
    const chosen = options();
    void this.#handle.raw; // code "freed"
    const before = this.#run;
    if (before?.on) throw alreadyOn(this.steps);
    const run = new Run(this.#steps, dataOf(dataset), chosen);
    this.#run = run;
    await before?.settle();
    yield* run.steps();
  }

  /**
   * The mean loss over the dataset's validation split, or with `all` over the whole dataset.
   *
   * @throws {@link TinyloomError} `invalid-options` when the dataset has no validation split,
   * `aborted`.
   */
  async evaluate(dataset: Dataset, options: EvaluateOptions = {}): Promise<Evaluation> {
    const chosen = check<EvaluateOptions>("evaluate", options, {
      ...LONG,
      averaged: flag,
      all: flag,
    });
    return this.#steps.evaluate(dataOf(dataset), chosen);
  }

  /**
   * The gradients of the last step by safetensors name: averaged over accumulation, before
   * clipping. Each has its weight's shape, flattened row by row. A save does not keep them, and
   * {@link Trainer.profile} overwrites them.
   *
   * @throws {@link TinyloomError} `invalid-options` where there are none: before the first step,
   * after a resume, after a profile; `aborted`.
   */
  async gradients(options: LongOptions = {}): Promise<{ [name: string]: Float32Array }> {
    const chosen = check("gradients", options, LONG);
    return this.#handle.run(async (raw) => {
      const { gradients } = await deferredPart();
      return gradients(raw, chosen);
    }, chosen.signal);
  }

  /**
   * Everything needed to continue: the model's files, the optimizer's state, and the trainer's state
   * with the place in the data. With `to` they are written as {@link Model.save} does. With `good: true` they
   * are those of the newest snapshot of good weights, for a run that ended with `non-finite`.
   *
   * @throws {@link TinyloomError} as {@link Model.save}; `invalid-options` where no snapshot is good.
   */
  save(options: TrainerSaveOptions & { to: SaveTarget }): Promise<undefined>;
  save(options?: LongOptions & { good?: boolean }): Promise<TrainerFiles>;
  async save(options: TrainerSaveOptions = {}): Promise<TrainerFiles | undefined> {
    const names = [...this.#of.names, ...STATE_FILES];
    return this.#steps.save(saveOptions(options, names, { good: flag }));
  }

  /**
   * The files of the model or adapter with the average that `ema` keeps in the place of its weights, as
   * {@link Model.save} gives them. Weights, average and state stay as they are, to the bit.
   *
   * @throws {@link TinyloomError} as {@link Model.save}; `invalid-options` where there is no average.
   */
  saveAveraged(options: SaveOptions & DtypeOptions & { to: SaveTarget }): Promise<undefined>;
  saveAveraged(options?: LongOptions & DtypeOptions): Promise<ModelFiles>;
  async saveAveraged(options: SaveOptions & DtypeOptions = {}): Promise<ModelFiles | undefined> {
    return (await deferredPart()).saveAveraged(this.#handle, this.#of, options);
  }

  /**
   * The dispatches of a step, with the reason of each choice: of one with the documents, weights and soft targets of the last
   * step. A step by a gradient function is listed as one without.
   */
  plan(): PlanRow[] {
    return this.#handle.callSync((raw) => JSON.parse(raw.plan()) as PlanRow[]);
  }

  /**
   * The text of a dispatch's kernel: the WGSL that was joined for this model and this device, as it is
   * compiled.
   *
   * @param row - the index of a row of {@link Trainer.plan}.
   * @throws {@link TinyloomError} `invalid-options` where the plan has no such row.
   */
  wgsl(row: number): string {
    return this.#handle.callSync((raw) => raw.plan(typeof row === "number" ? row : Number.NaN));
  }

  /**
   * The plan with the time that each dispatch took on the GPU, where the device has timestamps.
   * Replays the batch of the last step or evaluation, and an optimizer step that leaves weights and
   * moments as they are. It overwrites the gradients: {@link Trainer.gradients} has none until the
   * next step. An abort after it has begun does so too.
   *
   * @throws {@link TinyloomError} `invalid-options` before the first step and in the middle of an
   * accumulation; `aborted`.
   */
  async profile(options: LongOptions = {}): Promise<ProfileRow[]> {
    const chosen = check("profile", options, LONG);
    return this.#handle.run(async (raw) => {
      const rows = await watched("profile", chosen, (ask) => raw.profile(ask));
      return JSON.parse(rows) as ProfileRow[];
    }, chosen.signal);
  }

  /** Frees the trainer's GPU memory; the model stays. Later calls give code "freed". */
  free(): void {
    this.#recovery?.freed();
    this.#handle.free();
    this.#run?.release();
    this.#steps.free();
    this.#of.disown(this);
  }

  /** Frees the trainer, as the end of a `using` block does. */
  declare readonly [Symbol.dispose]: () => void;
  /** Frees the trainer and waits until its running operation has ended: for `await using`. */
  declare readonly [Symbol.asyncDispose]: () => Promise<void>;

  static {
    disposable(Trainer.prototype, {
      end: (trainer) => trainer.free(),
      settled: (trainer) => trainer.#handle.settled(),
    });
  }
}

/** The trainer, unless what it trains was freed meanwhile. */
function adopt(handle: RawHandle<RawModel>, raw: RawTrainer, make: () => Trainer): Trainer {
  if (handle.freed) raw.release();
  void handle.raw; // code "freed"
  return make();
}
