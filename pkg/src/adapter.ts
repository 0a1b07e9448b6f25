import type {
  ADAPTER,
  AdapterFiles,
  AdapterOption,
  AdapterOptions,
  LoadAdapterOptions,
  MergeOptions,
  ResolvedAdapterOptions,
} from "./adapter-types.js";
import { disposable } from "./dispose.js";
import type { CheckpointSource } from "./file-part.js";
import { expectMade, MADE } from "./inner.js";
import { type InnerAdapter, models } from "./internal.js";
import { deferredPart } from "./lazy.js";
import type { Model } from "./model.js";
import type { ModelFiles } from "./model-types.js";
import type { LoadOptions, LongOptions } from "./progress.js";
import { saveOptions } from "./save-options.js";
import {
  ADAPTER_FILES,
  type DtypeOptions,
  type RunHandle,
  type SaveOptions,
  type SaveTarget,
} from "./save-types.js";

/** An adapter whose parts are there. */
export type MakeAdapter = (
  model: Model,
  inner: InnerAdapter,
  options: ResolvedAdapterOptions,
) => Adapter;

let make: MakeAdapter;
/** Makes one. @internal */
export const makeAdapter: MakeAdapter = (...made) => make(...made);

/**
 * A LoRA adapter (Hu et al., arXiv:2106.09685) on a model that stays as it is: beside each adapted matrix W it
 * has two small ones, A and B, and the product is `x·Wᵀ + scale · x·Aᵀ·Bᵀ`. Several adapters may share one
 * model. {@link Trainer.create} trains an adapter: only its matrices have gradients and optimizer state. Calls
 * of the model use it where they are given it. The guide is `docs/guides/adapters.md`.
 *
 * @example
 * ```ts
 * const adapter = await Adapter.create(model, { rank: 16, alpha: 32, targets: ["q_proj", "v_proj"] });
 * const trainer = await Trainer.create(adapter, { learningRate: 2e-4 });
 * for await (const m of trainer.run(dataset, { steps: 100 })) console.log(m.loss);
 * for await (const { token } of model.generate(prompt, { adapter })) …
 * const files = await adapter.save(); // adapter_config.json and adapter_model.safetensors, for PEFT too
 * ```
 */
export class Adapter implements AdapterOption {
  /** @hidden */
  declare readonly [ADAPTER]: true;
  readonly #inner: InnerAdapter;
  /** The model under it. */
  readonly model: Model;
  /** How it was made. */
  readonly options: Readonly<ResolvedAdapterOptions>;

  private constructor(
    made: typeof MADE,
    model: Model,
    inner: InnerAdapter,
    options: ResolvedAdapterOptions,
  ) {
    expectMade(made, "Adapter");
    this.#inner = inner;
    this.model = model;
    this.options = options;
    models.set(this, inner);
  }

  /**
   * A new adapter. B is zero, so that at first the model gives with it what it gives without.
   *
   * @param options - also `signal` and `onProgress`.
   * @throws {@link TinyloomError} `invalid-options`, also for a target that no linear module of a layer has;
   * `limit-exceeded`, `out-of-memory`, `aborted`, `freed`.
   */
  static async create(model: Model, options: AdapterOptions & LongOptions = {}): Promise<Adapter> {
    return (await deferredPart()).createAdapter(makeAdapter, model, options);
  }

  /**
   * Loads an adapter as PEFT saves it: `adapter_config.json` and `adapter_model.safetensors` in F32, F16 or
   * BF16. Modules may be chosen by patterns and have several ranks and scales. What tinyloom's adapters
   * have not, such as DoRA, `modules_to_save` and trained biases, is refused by name, and so are tensors that the config does not ask for.
   *
   * @param source - as in {@link Model.fromPretrained}.
   * @throws {@link TinyloomError} `invalid-config`, `invalid-checkpoint`, `invalid-options`, `limit-exceeded`,
   * `out-of-memory`, `aborted`, `freed`.
   */
  static async load(
    model: Model,
    source: CheckpointSource | RunHandle,
    options: LoadAdapterOptions = {},
  ): Promise<Adapter> {
    return (await deferredPart()).loadAdapter(makeAdapter, model, source, options);
  }

  /** How many weights A and B have in all. */
  get parameterCount(): number {
    return this.#inner.handle.callSync((raw) => raw.parameterCount());
  }

  /** Bytes of GPU memory in use by the adapter and its trainers, besides the model's. */
  get gpuBytes(): number {
    return this.#inner.handle.callSync((raw) => raw.gpuBytes());
  }

  /**
   * The adapter's files, with weights in F32: PEFT's `PeftModel.from_pretrained` loads them as they are. With `to`
   * they are written as {@link Model.save} does.
   *
   * @throws {@link TinyloomError} as {@link Model.save}.
   */
  save(options: SaveOptions & { to: SaveTarget }): Promise<undefined>;
  save(options?: LongOptions): Promise<AdapterFiles>;
  async save(options: SaveOptions = {}): Promise<AdapterFiles | undefined> {
    const chosen = saveOptions(options, ADAPTER_FILES);
    const { handle, recovery } = this.#inner;
    return handle.run(async (raw) => {
      const { saveWeights } = await deferredPart();
      const files = await saveWeights<AdapterFiles | undefined>(chosen, this.#inner, raw);
      recovery?.saved(chosen);
      return files;
    }, chosen.signal);
  }

  /**
   * Adds `scale · B·A` to the model's own weights and frees the adapter and its trainers. `model.save()` then has
   * both in one. Other adapters of the model go on from the changed weights.
   *
   * @throws {@link TinyloomError} `freed`, also after a merge; `invalid-options` where the model holds its matrices
   * packed: {@link Adapter.saveMerged} serves there; `aborted` before anything was changed.
   */
  async merge(options: LongOptions = {}): Promise<void> {
    return (await deferredPart()).mergeAdapter(this.#inner, options);
  }

  /**
   * The files of the checkpoint under the adapter with the adapter added, as {@link Model.save} gives those of a
   * model: in one file, with `generation_config.json` where there is one. The checkpoint is read again and passes in pieces, so that a model that
   * holds its matrices packed is merged from the checkpoint's own numbers. Model and adapter stay as they are.
   *
   * @param source - what the model was loaded from, as in {@link Model.fromPretrained}.
   * @param options - `to`, `dtype`, `signal` and `onProgress` as of {@link Model.save}, `cache` as of
   * {@link Model.fromPretrained}.
   * @throws {@link TinyloomError} as {@link Model.save} and {@link Model.fromPretrained}; `invalid-checkpoint` for
   * a checkpoint of another shape.
   */
  saveMerged(
    source: CheckpointSource | RunHandle,
    options: MergeOptions & { to: SaveTarget },
  ): Promise<undefined>;
  saveMerged(
    source: CheckpointSource | RunHandle,
    options?: LoadOptions & DtypeOptions,
  ): Promise<ModelFiles>;
  async saveMerged(source: unknown, options: MergeOptions = {}): Promise<ModelFiles | undefined> {
    return (await deferredPart()).saveMerged(this.#inner, source, options);
  }

  /**
   * Frees the GPU memory of the adapter and of its trainers; the model stays as it was. Later calls fail with code
   * "freed". A second `free()` does nothing.
   */
  free(): void {
    this.#inner.end();
  }

  /** Frees the adapter, as the end of a `using` block does. */
  declare readonly [Symbol.dispose]: () => void;
  /** Frees the adapter and waits until its running operation has ended: for `await using`. */
  declare readonly [Symbol.asyncDispose]: () => Promise<void>;

  static {
    make = (...parts) => new Adapter(MADE, ...parts);
    disposable(Adapter.prototype, {
      end: (adapter) => adapter.free(),
      settled: (adapter) => adapter.#inner.handle.settled(),
    });
  }
}
