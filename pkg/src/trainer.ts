import { Dataset } from "./dataset.js";
import { TinyloomError, throwIfAborted, toError } from "./error.js";
import { guarded, Handle } from "./handle.js";
import { expectRuntime, loading, MODEL_FILES, Model, saveModel } from "./model.js";
import {
  abortSignal,
  check,
  flag,
  fraction,
  integer,
  invalid,
  isA,
  number,
  oneOf,
  orNull,
  type Rules,
  seed,
  show,
} from "./options.js";
import { type RawResume, type RawTrainer, withRoom } from "./raw.js";
import type { Runtime } from "./runtime.js";
import { pullTensors, readAhead, readHeaders, tensorSizes } from "./safetensors.js";
import { type SaveOptions, type SaveTarget, saveOptions, saving } from "./save.js";
import {
  type CheckpointFiles,
  LONG,
  type LongOptions,
  openSource,
  readConfig,
  readText,
  report,
  required,
  STATE_BYTES,
  weightFiles,
} from "./source.js";
import { toSomeTokens, toTokens } from "./tokens.js";
import type {
  Batch,
  Evaluation,
  PlanRow,
  ProfileRow,
  RunOptions,
  StepMetrics,
  TrainerFiles,
  TrainerOptions,
} from "./trainer-types.js";

const MAX_U32 = 0xffff_ffff;

const OPTIONS: Rules<TrainerOptions> = {
  learningRate: number(0, Number.POSITIVE_INFINITY, true),
  schedule: oneOf("constant", "linear", "cosine"),
  warmupSteps: integer(0, MAX_U32),
  totalSteps: integer(1, MAX_U32),
  minLearningRate: number(0),
  weightDecay: number(0),
  beta1: fraction(),
  beta2: fraction(),
  epsilon: number(0, Number.POSITIVE_INFINITY, true),
  maxGradNorm: orNull(number(0, Number.POSITIVE_INFINITY, true)),
  gradientAccumulation: integer(1, 65_536),
  tokensPerStep: integer(1, MAX_U32),
  recompute: flag,
  precision: oneOf("f32", "mixed"),
  seed,
};

const RUN: Rules<RunOptions> = {
  steps: integer(1, MAX_U32),
  signal: abortSignal,
  evaluateEvery: integer(1, MAX_U32),
  maxSkipped: integer(1, MAX_U32),
  stepsAhead: integer(0, 16),
};

/** Names of a trainer's files. */
const FILES = [...MODEL_FILES, "optimizer.safetensors", "trainer_state.json"];

const anything = () => undefined;
const BATCH: Rules<Batch> = { tokens: anything, targets: anything, documents: anything };

/** The resolved options, as the module reports them. */
interface ResolvedOptions {
  readonly totalSteps: number | null;
  readonly gradientAccumulation: number;
}

/**
 * Trains a model with AdamW. Training is deterministic: the same seed, data and adapter give the
 * same bits, also across `save()` and `resume()`.
 *
 * @example
 * ```ts
 * const trainer = await Trainer.create(model, { learningRate: 1e-3 });
 * for await (const m of trainer.run(dataset, { steps: 300 })) console.log(m.step, m.loss);
 * ```
 */
export class Trainer {
  readonly #handle: Handle<RawTrainer>;
  /** Steps done. */
  #step: number;
  /** Whether the length of the schedule is the caller's choice, not that of `run`. */
  readonly #fixedTotal: boolean;
  /** The model being trained; usable between steps. */
  readonly model: Model;

  private constructor(model: Model, raw: RawTrainer, step: number, fixedTotal: boolean) {
    this.model = model;
    this.#handle = new Handle("Trainer", raw, model._queue);
    this.#step = step;
    this.#fixedTotal = fixedTotal;
    model._own(this);
  }

  /**
   * A trainer for the model; allocates gradients, moments and activations.
   *
   * @throws {@link TinyloomError} `invalid-options`, `limit-exceeded`, `out-of-memory`.
   */
  static async create(model: Model, options: TrainerOptions = {}): Promise<Trainer> {
    if (!isA(model, Model)) {
      throw invalid(`Trainer.create takes a Model first, not ${show(model)}`);
    }
    const chosen = check("Trainer.create", options, OPTIONS);
    const fixedTotal = chosen.totalSteps !== undefined;
    return model._handle.run(async (raw) => {
      const { RawTrainer } = model._runtime._module;
      const trainer = await RawTrainer.create(raw, JSON.stringify(chosen));
      const made = adopt(model, trainer, () => new Trainer(model, trainer, 0, fixedTotal));
      await model._runtime._remember();
      return made;
    });
  }

  /**
   * Goes on from what {@link Trainer.save} returned, bit for bit on the same adapter. State, config,
   * headers and the GPU's memory are judged before a tensor is read.
   *
   * @param files - the saved files by name, or a base URL under which they lie, in Node also a
   * folder's `file:` URL. Bytes are not copied: they must not change until the promise settles.
   * @throws {@link TinyloomError} `invalid-checkpoint` and what {@link Model.fromPretrained} throws.
   */
  static async resume(
    runtime: Runtime,
    files: string | URL | CheckpointFiles,
    options: LongOptions = {},
  ): Promise<Trainer> {
    expectRuntime("Trainer.resume", runtime);
    const chosen = check("Trainer.resume", options, LONG);
    const source = openSource("Trainer.resume", files, chosen);
    return runtime._call(async (raw, module) => {
      const state = await readText(source, "trainer_state.json", STATE_BYTES);
      const loader = new module.RawLoader(raw, await readConfig(source));
      let resume: RawResume | undefined;
      try {
        resume = new module.RawResume(loader, state);
        const open = [
          ...(await readHeaders(await weightFiles(source), withRoom(module, loader))),
          ...(await readHeaders(
            [await required(source, "optimizer.safetensors")],
            withRoom(module, resume),
          )),
        ];
        throwIfAborted(chosen.signal, "resume");
        await loader.allocate();
        await resume.allocate(loader);
        await pullTensors(open, loading(chosen));
        const [trainer, weights] = [resume.finish(), loader.finish()];
        const { progress, totalStepsGiven } = JSON.parse(state) as SavedState;
        const model = Model._adopt(runtime, weights);
        const made = new Trainer(model, trainer, progress.step, totalStepsGiven === true);
        await runtime._remember();
        return made;
      } finally {
        resume?.release();
        loader.release();
      }
    });
  }

  /**
   * One optimizer step, or one micro-step of it with accumulation. A non-finite loss or gradient
   * norm leaves the weights as they were and gives `skipped: true`.
   *
   * @throws {@link TinyloomError} `invalid-tokens`.
   */
  async step(batch: Batch): Promise<StepMetrics> {
    const { tokens, targets, documents } = check("step", batch, BATCH);
    const ids = toSomeTokens("tokens", tokens);
    const wanted = toTokens("targets", targets);
    const starts = documents === undefined ? undefined : toTokens("documents", documents);
    return this.#handle.run(async (raw) => this.#note(await raw.step(ids, wanted, starts)));
  }

  /**
   * Trains on the dataset's next batches and yields each step's metrics. Leaving the loop, or the
   * signal, stops between two steps; a later `run` goes on where this one stopped. In the middle of
   * an accumulation the signal stops too, and the step begins again with the later `run`. A run that
   * ends before its first step leaves the schedule as it was.
   *
   * @throws {@link TinyloomError} `invalid-options`, `aborted`, and `non-finite` after `maxSkipped`
   * skipped steps in a row.
   */
  async *run(
    dataset: Dataset,
    options: RunOptions = {},
  ): AsyncGenerator<StepMetrics, void, undefined> {
    const chosen = check("run", options, RUN);
    const { signal, evaluateEvery, maxSkipped = 3, stepsAhead = 0 } = chosen;
    throwIfAborted(signal, "run");
    const data = this.#data(dataset); // refused before the schedule learns of the steps
    this.#handle.now((raw) => {
      if (stepsAhead > 0) raw.expectWholeSteps();
      if (evaluateEvery) raw.evaluationBatches(data);
    });
    const total = this.#totalSteps();
    const last = this.#plannedEnd(chosen.steps, total);
    const queued: Promise<string>[] = [];
    let skipped = 0;
    let done = 0;
    try {
      while (this.#step < last || queued.length > 0) {
        throwIfAborted(signal, "run");
        const evaluated = evaluateEvery ? nextMultiple(this.#step, evaluateEvery) : Infinity;
        const metrics =
          stepsAhead > 0
            ? await this.#oldest(dataset, queued, Math.min(last, evaluated), stepsAhead)
            : await this.#stepDataset(dataset, signal);
        done += 1;
        if (metrics.step === evaluated || (evaluateEvery && metrics.step >= last)) {
          const { loss } = await this.evaluate(dataset, signal ? { signal } : {});
          yield { ...metrics, validationLoss: loss };
        } else {
          yield metrics;
        }
        skipped = metrics.skipped ? skipped + 1 : 0;
        if (skipped >= maxSkipped) throw nonFinite(metrics, skipped);
      }
    } finally {
      // What was queued is done all the same: the step count follows it, the first error was thrown.
      for (const result of await Promise.allSettled(queued)) {
        if (result.status !== "fulfilled") continue;
        this.#note(result.value);
        done += 1;
      }
      // A run that came to nothing leaves the schedule as it was, unless another has lengthened it.
      if (done === 0 && !this.#handle.freed && this.#totalSteps() === last) {
        this.#handle.now((raw) => raw.setTotalSteps(total));
      }
    }
  }

  /**
   * The mean loss over the dataset's validation split.
   *
   * @throws {@link TinyloomError} `invalid-options` when the dataset has no validation split,
   * `aborted`.
   */
  async evaluate(dataset: Dataset, options: LongOptions = {}): Promise<Evaluation> {
    const chosen = check("evaluate", options, LONG);
    const { signal } = chosen;
    return this.#handle.run(async (raw) => {
      const data = this.#data(dataset);
      const total = raw.evaluationBatches(data);
      let sum = 0;
      let tokens = 0;
      for (let index = 0; index < total; index++) {
        throwIfAborted(signal, "evaluate");
        report(chosen, { loaded: index, total, stage: "evaluate" });
        const [nats = 0, counted = 0] = await raw.evaluateBatch(data, index);
        sum += nats;
        tokens += counted;
      }
      report(chosen, { loaded: total, total, stage: "evaluate" });
      return { loss: sum / tokens, tokens };
    });
  }

  /**
   * The gradients of the last step by safetensors name: averaged over accumulation, before
   * clipping. Each has its weight's shape, flattened row by row. A save does not keep them, and
   * {@link Trainer.profile} overwrites them.
   *
   * @throws {@link TinyloomError} `invalid-options` where there are none: before the first step,
   * after a resume, after a profile.
   */
  async gradients(): Promise<{ [name: string]: Float32Array }> {
    return this.#handle.run(async (raw) => {
      const names = JSON.parse(raw.gradientNames()) as string[];
      const sizes = tensorSizes(this.model._handle.raw.saveHeader());
      const result: { [name: string]: Float32Array } = {};
      let index = 0;
      for await (const one of readAhead(sizes, (at) => raw.readGradient(at))) {
        result[names[index++] as string] = one;
      }
      return result;
    });
  }

  /**
   * Everything needed to go on: the model's files, the optimizer's state, the trainer's state with
   * the place in the data. With `to` they are written as {@link Model.save} does.
   *
   * @throws {@link TinyloomError} as {@link Model.save}.
   */
  save(options: SaveOptions & { to: SaveTarget }): Promise<undefined>;
  save(options?: LongOptions): Promise<TrainerFiles>;
  async save(options: SaveOptions = {}): Promise<TrainerFiles | undefined> {
    const chosen = saveOptions(options, FILES);
    const model = this.model._handle.raw;
    return this.#handle.run((raw) =>
      saving<TrainerFiles | undefined>(chosen, FILES, async (files) => {
        await saveModel(model, files);
        await files.tensors("optimizer.safetensors", raw);
        const saved = { ...JSON.parse(await raw.state()), totalStepsGiven: this.#fixedTotal };
        await files.text("trainer_state.json", `${JSON.stringify(saved, null, 2)}\n`);
      }),
    );
  }

  /** The dispatches of a step, with the reason of each choice. */
  plan(): PlanRow[] {
    return this.#handle.now((raw) => JSON.parse(raw.plan()) as PlanRow[]);
  }

  /**
   * The plan with the time that each dispatch took on the GPU, where the device has timestamps.
   * Replays the batch of the last step or evaluation, and an optimizer step that leaves weights and
   * moments as they are. It overwrites the gradients: {@link Trainer.gradients} has none until the
   * next step.
   *
   * @throws {@link TinyloomError} `invalid-options` before the first step and in the middle of an
   * accumulation.
   */
  async profile(): Promise<ProfileRow[]> {
    return this.#handle.run(async (raw) => JSON.parse(await raw.profile()) as ProfileRow[]);
  }

  /** Bytes of the activation slots, as shared and without sharing; for the project's tests. @internal */
  _activationBytes(): { shared: number; unshared: number } {
    const [shared = 0, unshared = 0] = this.#handle.now((raw) => raw.activationBytes());
    return { shared, unshared };
  }

  /** Frees the trainer's GPU memory; the model stays. Later calls give code "freed". */
  free(): void {
    this.#handle.free();
    this.model._disown(this);
  }

  #note(json: string): StepMetrics {
    const metrics = JSON.parse(json) as StepMetrics;
    // Steps that were queued end behind one that `step` has done meanwhile.
    this.#step = Math.max(this.#step, metrics.step);
    // JSON has no NaN: a number that is not finite arrives as null.
    return { ...metrics, loss: metrics.loss ?? NaN, gradNorm: metrics.gradNorm ?? NaN };
  }

  /** A step, which the signal and `free` also end between its micro-steps. */
  #stepDataset(dataset: Dataset, signal: AbortSignal | undefined): Promise<StepMetrics> {
    const stop = () => signal?.aborted === true || this.#handle.freed;
    return this.#handle.run(async (raw) => {
      try {
        return this.#note(await raw.stepDataset(this.#data(dataset), stop));
      } catch (error) {
        throwIfAborted(signal, "run");
        throw error;
      }
    });
  }

  /** Queues steps up to the one numbered `until`, `stepsAhead` behind the oldest, and awaits that. */
  async #oldest(
    dataset: Dataset,
    queued: Promise<string>[],
    until: number,
    stepsAhead: number,
  ): Promise<StepMetrics> {
    while (queued.length <= stepsAhead && this.#step + queued.length < until) {
      // In its turn among the model's operations, without holding up those behind it.
      const { done } = await this.#handle.run((raw) => ({
        done: guarded(() => raw.queueDataset(this.#data(dataset))),
      }));
      done.catch(() => {}); // whoever awaits it hears of it
      queued.push(done);
    }
    try {
      return this.#note(await (queued.shift() as Promise<string>));
    } catch (error) {
      void this.#handle.raw;
      throw toError(error);
    }
  }

  #data(dataset: Dataset) {
    if (!isA(dataset, Dataset)) {
      throw invalid(`give a Dataset, not ${show(dataset)}; Dataset.fromText makes one`);
    }
    return dataset._raw(this.model._runtime._module);
  }

  /**
   * The step after which `run` ends. Without a `totalSteps` of the caller the schedule reaches at
   * least that far, so that a run cut short and continued keeps its schedule.
   */
  #plannedEnd(steps: number | undefined, total: number | undefined): number {
    if (steps === undefined) return this.#fixedTotal && total ? total : Infinity;
    const last = this.#step + steps;
    if (!this.#fixedTotal && (total ?? 0) < last) {
      this.#handle.now((raw) => raw.setTotalSteps(last));
    }
    return last;
  }

  #totalSteps(): number | undefined {
    const { totalSteps } = JSON.parse(this.#handle.now((raw) => raw.options())) as ResolvedOptions;
    return totalSteps ?? undefined;
  }
}

/** The first multiple of `every` after `step`. */
const nextMultiple = (step: number, every: number) => (Math.floor(step / every) + 1) * every;

/** The trainer, unless its model was freed meanwhile. */
function adopt(model: Model, raw: RawTrainer, make: () => Trainer): Trainer {
  if (model._handle.freed) raw.release();
  void model._handle.raw; // code "freed"
  return make();
}

/** What this layer reads of trainer_state.json, and the one field that it adds. */
interface SavedState {
  readonly progress: { readonly step: number };
  readonly totalStepsGiven?: boolean;
}

function nonFinite(metrics: StepMetrics, skipped: number): TinyloomError {
  return new TinyloomError(
    "non-finite",
    `the loss or gradient norm was not finite in ${skipped} steps in a row, up to step ` +
      `${metrics.step} (loss ${metrics.loss}); the weights are those of the last good step: lower ` +
      "learningRate or look at the data",
  );
}
