import { overOf, withOver } from "./adapter-parts.js";
import type { Only, With } from "./asked.js";
import { CallQueue } from "./call-queue.js";
import type { Looking } from "./capture.js";
import type {
  AttributeOptions,
  ByLayer,
  Captured,
  CaptureOptions,
  LensLayer,
  LensOptions,
} from "./capture-types.js";
import { disposable } from "./dispose.js";
import { toError } from "./error.js";
import type { CheckpointSource } from "./file-part.js";
import { openSource } from "./file-source.js";
import type { WeightFormat } from "./formats.js";
import { batchGeneration, generation } from "./generate-tokens.js";
import type {
  BatchGeneration,
  BatchOptions,
  BatchPrompt,
  BatchToken,
  GeneratedToken,
  GenerateOptions,
  Generation,
} from "./generate-types.js";
import { expectMade, MADE } from "./inner.js";
import { type InnerModel, models, type OwnedByModel, runtimes } from "./internal.js";
import type { Intervened } from "./interventions-types.js";
import { deferredPart } from "./lazy.js";
import { configJson, type ModelConfig } from "./model-config.js";
import {
  ATTENTION,
  INFERENCE,
  inference,
  LOGITS,
  MODEL,
  PRETRAINED,
  SCORE,
  STATES,
} from "./model-options.js";
import type {
  EmbedOptions,
  GgufFiles,
  HiddenStatesOptions,
  InferenceOptions,
  LogitsOptions,
  ModelAttentionOptions,
  ModelFiles,
  ModelOptions,
  PretrainedOptions,
  ScoreOptions,
  Scores,
} from "./model-types.js";
import { NO_NOTES } from "./notes.js";
import { check, copied, inspect, type Rules } from "./options.js";
import type { PrepareOptions } from "./prepare-types.js";
import type { LongOptions } from "./progress.js";
import { endWith, RawHandle } from "./raw-handle.js";
import type { RawModel, RawRuntime } from "./raw-types.js";
import type { Origin } from "./recovery/origin.js";
import { type ResolvedConfig, resolvedConfig } from "./resolved-config.js";
import { expectRuntime, type Runtime } from "./runtime.js";
import { FORMAT, saveOptions } from "./save-options.js";
import {
  type DtypeOptions,
  type GgufOptions,
  MODEL_FILES,
  type ModelSaveOptions,
  type RunHandle,
  type SaveTarget,
} from "./save-types.js";
import type { TextDecoding } from "./tokenizer-types.js";
import { type TokenIds, toSomeTokens, toTokens } from "./tokens.js";
import { watched } from "./watch.js";

type Files = ModelFiles | GgufFiles | undefined;
type Deferred = Awaited<ReturnType<typeof deferredPart>>;

/** A model of the module's, which was made on that raw runtime. @internal */
export let adoptModel: (runtime: Runtime, raw: RawModel, on: RawRuntime, origin: Origin) => Model;

/**
 * A transformer language model on a runtime. Its operations, and those of its trainers, run one
 * after the other in the order of the calls.
 */
export class Model {
  readonly #inner: InnerModel;
  readonly #handle: RawHandle<RawModel>;
  /** Its trainers and adapters. */
  readonly #owned = new Set<OwnedByModel>();
  /** The config in full, with every default filled in. */
  readonly config: ResolvedConfig;
  /** The format in which it holds its matrices, as {@link Model.fromPretrained} was asked. */
  readonly weights: WeightFormat;
  /** The shape of each parameter, by its name in the checkpoint. A tied head is its embedding. */
  readonly parameters: { readonly [name: string]: readonly number[] };

  private constructor(
    made: typeof MADE,
    runtime: Runtime,
    raw: RawModel,
    on: RawRuntime,
    origin: Origin,
  ) {
    expectMade(made, "Model");
    const queue = new CallQueue();
    const inner = runtimes.of(runtime);
    const handle = new RawHandle("Model", raw, queue, inner.module);
    this.#handle = handle;
    this.#inner = models.set(this, {
      runtime: inner,
      names: MODEL_FILES,
      queue,
      handle,
      notes: origin.notes ?? NO_NOTES,
      recovery: inner.recovery?.model({ handle, queue, on, origin }),
      own: (one) => this.#owned.add(one),
      disown: (one) => this.#owned.delete(one),
    });
    this.config = resolvedConfig(JSON.parse(raw.config()));
    this.weights = raw.weights() as WeightFormat;
    this.parameters = Object.freeze(Object.fromEntries(JSON.parse(raw.tensors())));
    inner.own(this);
  }

  /**
   * A new model with random weights, as transformers initialises them.
   *
   * @throws {@link TinyloomError} `invalid-config`, `limit-exceeded`, `out-of-memory`, `aborted`.
   */
  static async create(
    runtime: Runtime,
    config: ModelConfig,
    options: ModelOptions = {},
  ): Promise<Model> {
    expectRuntime("Model.create", runtime);
    const json = configJson("Model.create", config);
    const chosen = check("Model.create", options, MODEL);
    return runtimes.of(runtime).call(async (raw, module) => {
      const { created } = await deferredPart();
      const { model, origin } = await created(raw, module, json, chosen);
      return new Model(MADE, runtime, model, raw, origin);
    }, chosen.signal);
  }

  /**
   * How many weights a model of this config would have, without creating it. A weight takes 4 bytes on
   * the GPU. In training it takes 16: the weight, its gradient and two moments. Activations come on top.
   *
   * @throws {@link TinyloomError} `invalid-config`.
   */
  static countParameters(runtime: Runtime, config: ModelConfig): number {
    expectRuntime("Model.countParameters", runtime);
    const json = configJson("Model.countParameters", config);
    try {
      return runtimes.of(runtime).module.RawModel.countParameters(json);
    } catch (error) {
      throw toError(error);
    }
  }

  /**
   * Loads a checkpoint of F32, F16 or BF16 safetensors, in one file or sharded, or a GGUF file. The config is judged
   * first, then the files' headers, then the GPU's memory: no tensor is read before that. Tensors pass
   * in pieces of a few megabytes; a server that answers to `Range` is asked only for what is needed.
   *
   * @param source - a base URL, under which `config.json` and `model.safetensors` lie (in Node also
   * a folder's `file:` URL), an object of files by name, the files of a folder that the user picked (`input.files` as it
   * is, or a directory handle), a run of `tinyloom/storage`, or a GGUF file: its URL, or a Blob,
   * file handle or bytes. Bytes are not copied: they must not change until the promise settles.
   * `docs/guides/gguf.md` says what is read of a GGUF file.
   * @throws {@link TinyloomError} `invalid-checkpoint`, `invalid-config`, `limit-exceeded`,
   * `out-of-memory`, `aborted`.
   */
  static async fromPretrained(
    runtime: Runtime,
    source: CheckpointSource | RunHandle,
    options: PretrainedOptions = {},
  ): Promise<Model> {
    expectRuntime("Model.fromPretrained", runtime);
    const { weights, ...chosen } = check("Model.fromPretrained", options, PRETRAINED);
    const files = openSource("Model.fromPretrained", source, chosen);
    return runtimes.of(runtime).call(async (raw, module) => {
      const { loaded } = await deferredPart();
      const { model, origin } = await loaded(raw, module, files, weights, chosen);
      return new Model(MADE, runtime, model, raw, origin);
    }, chosen.signal);
  }

  /** How many weights there are; tied embeddings count once. */
  get parameterCount(): number {
    return this.#handle.callSync((raw) => raw.parameterCount());
  }

  /** Bytes of GPU memory in use by the model and its trainers. */
  get gpuBytes(): number {
    return this.#handle.callSync((raw) => raw.gpuBytes());
  }

  /**
   * The logits at each position, or at those from `from` on.
   *
   * @param tokens - 1 to `max_position_embeddings` ids, as one document.
   * @returns `(tokens.length - from) × vocab_size` numbers, one row per position.
   * @throws {@link TinyloomError} `invalid-tokens`, `invalid-options`, `limit-exceeded`, `aborted`.
   */
  async logits(tokens: TokenIds, options: LogitsOptions = {}): Promise<Float32Array> {
    return this.#look("logits", tokens, options, LOGITS);
  }

  /**
   * The mean cross-entropy in nats per token.
   *
   * @param targets - the correct id for each position, as many as `tokens`. Positions with 0xffffffff
   * are left out of the mean. Default: `tokens` shifted by one.
   * @throws {@link TinyloomError} `invalid-tokens`, `invalid-options`, `limit-exceeded`, `aborted`.
   */
  async loss(
    tokens: TokenIds,
    targets?: TokenIds,
    options: InferenceOptions = {},
  ): Promise<number> {
    const [long, json] = inference("loss", options, INFERENCE, this.weights);
    const ids = toSomeTokens("tokens", tokens, this.config);
    const wanted =
      targets === undefined ? undefined : toSomeTokens("targets", targets, this.config);
    return withOver(overOf(this.#inner, long), (handle) =>
      handle.run(async (raw) => {
        const changed = await intervened("loss", long, raw, ids);
        return watched("loss", long, (ask) => raw.loss(ids, wanted, json, ask, changed));
      }, long.signal),
    );
  }

  /**
   * The log-probability of each target, without its position's logits; on request the entropy and the likeliest ids.
   *
   * @param tokens - of one text, or of packed documents of up to `max_position_embeddings` each.
   * @throws {@link TinyloomError} `invalid-tokens`, `invalid-options`, `limit-exceeded`, `out-of-memory`, `aborted`.
   *
   * @example
   * ```ts
   * const { logprobs } = await model.score(tokens, { temperature: 0.7 });
   * ```
   */
  score(
    tokens: TokenIds,
    options: ScoreOptions & { entropy: true; top: number },
  ): Promise<With<Scores, "entropy" | "top">>;
  score(
    tokens: TokenIds,
    options: ScoreOptions & { entropy: true },
  ): Promise<With<Scores, "entropy">>;
  score(tokens: TokenIds, options: ScoreOptions & { top: number }): Promise<With<Scores, "top">>;
  score(tokens: TokenIds, options?: ScoreOptions): Promise<Scores>;
  async score(tokens: TokenIds, options: ScoreOptions = {}): Promise<Scores> {
    const [long, json] = inference("score", options, SCORE, this.weights);
    const { targets, documents, signal } = long;
    const ids = toSomeTokens("tokens", tokens);
    const wanted = targets === undefined ? targets : toTokens("targets", targets);
    const starts = documents === undefined ? documents : toTokens("documents", documents);
    return withOver(overOf(this.#inner, long), (handle) =>
      handle.run(
        async (raw) => (await deferredPart()).scores(raw, [ids, wanted, starts, json], long),
        signal,
      ),
    );
  }

  /**
   * The hidden state of each position after some layers, as transformers gives it with
   * `output_hidden_states`.
   *
   * @param tokens - 1 to `max_position_embeddings` ids, as one document.
   * @returns `tokens.length × hidden_size` numbers, one row per position.
   * @throws {@link TinyloomError} `invalid-tokens`, `invalid-options`, `limit-exceeded`, `out-of-memory`,
   * `aborted`.
   *
   * @example
   * ```ts
   * const last = await model.hiddenStates(tokens, { layer: model.config.num_hidden_layers });
   * ```
   */
  async hiddenStates(tokens: TokenIds, options: HiddenStatesOptions): Promise<Float32Array> {
    return this.#look("hiddenStates", tokens, options, STATES);
  }

  /**
   * How much each position attends to each other with one head, as transformers gives it with
   * `output_attentions` and eager attention.
   *
   * @param tokens - 1 to `max_position_embeddings` ids, as one document.
   * @returns `tokens.length × tokens.length` probabilities, one row per position that attends. A row adds
   * up to 1 and is 0 for positions that it does not see: later ones, and those before a sliding window.
   * @throws {@link TinyloomError} `invalid-tokens`, `invalid-options`, `limit-exceeded`, `out-of-memory`,
   * `aborted`.
   *
   * @example
   * ```ts
   * const shares = await model.attention(tokens, { layer: 0, head: 2 });
   * const lastRow = shares.subarray(-tokens.length);
   * ```
   */
  async attention(tokens: TokenIds, options: ModelAttentionOptions): Promise<Float32Array> {
    return this.#look("attention", tokens, options, ATTENTION);
  }

  /**
   * What layers compute of a text, in one call and one readback: states, attention of all heads, what blocks add,
   * queries, keys and values. What is larger than a buffer may be is refused.
   *
   * @param tokens - 1 to `max_position_embeddings` ids, as one document.
   * @throws {@link TinyloomError} as {@link Model.hiddenStates}.
   *
   * @example
   * ```ts
   * const { residual, attention } = await model.capture(tokens, { residual: true, attention: true });
   * const [first, shares] = [residual[0], attention[2]]; // the embeddings, and all heads of layer 2
   * ```
   */
  async capture<Asked extends CaptureOptions>(
    tokens: TokenIds,
    options: Only<Asked, CaptureOptions>,
  ): Promise<Captured<Asked>> {
    const given: CaptureOptions = options;
    return this.#looking(tokens, given, (part) => part.capture) as Promise<Captured<Asked>>;
  }

  /**
   * What the model would say after each layer: final norm and head on the state there (nostalgebraist, "interpreting
   * GPT: the logit lens", 2020).
   *
   * @param tokens - 1 to `max_position_embeddings` ids, as one document.
   * @returns of each layer the log-probabilities of targets and the likeliest ids, as {@link Model.score}.
   * @throws {@link TinyloomError} as {@link Model.score}.
   *
   * @example
   * ```ts
   * for (const { layer, top } of await model.lens(tokens, { top: 1 })) {
   *   console.log(layer, tokenizer.decode(top.ids.slice(-1)));
   * }
   * ```
   */
  async lens(tokens: TokenIds, options: LensOptions = {}): Promise<LensLayer[]> {
    return this.#looking(tokens, options, (part) => part.lens);
  }

  /**
   * The gradient of a logit, or of one less another, by the residual stream of each position after each layer: how much
   * a change there would move it.
   *
   * @param tokens - 1 to `max_position_embeddings` ids, as one document.
   * @returns by layer `tokens.length × hidden_size` numbers.
   * @throws {@link TinyloomError} as {@link Model.hiddenStates}.
   *
   * @example
   * ```ts
   * const gradients = await model.attribute(tokens, { target: right, against: wrong });
   * ```
   */
  async attribute(tokens: TokenIds, options: AttributeOptions): Promise<ByLayer> {
    return this.#looking(tokens, options, (part) => part.attribute);
  }

  async #looking<O extends InferenceOptions, T>(
    tokens: TokenIds,
    options: O,
    of: (part: Deferred) => (looking: Looking, ids: Uint32Array, own: O) => Promise<T>,
  ): Promise<T> {
    const own = inspect("options", () => copied(options));
    const ids = toSomeTokens("tokens", tokens, this.config);
    const look = of(await deferredPart());
    const { config, weights } = this;
    const run: Looking["run"] = (chosen: InferenceOptions, work) =>
      withOver(overOf(this.#inner, chosen), (handle) => handle.run(work, chosen.signal));
    return look({ config, weights, run }, ids, own);
  }

  /**
   * A vector for each text; similar texts have similar vectors. It is the hidden state after the last layer and the final
   * norm, of one token or averaged over all. The defaults are those of Qwen3-Embedding.
   *
   * @param texts - texts, with the option `tokenizer`, or token ids of each.
   * @returns as many vectors of `hidden_size` numbers.
   * @throws {@link TinyloomError} as {@link Model.hiddenStates}.
   *
   * @example
   * ```ts
   * const [query] = await model.embed(["What is rain?"], { tokenizer, instruction: "Answer the question" });
   * const documents = await model.embed(["Water from clouds", "A small dog"], { tokenizer });
   * ```
   */
  async embed(
    texts: readonly (string | TokenIds)[],
    options: EmbedOptions = {},
  ): Promise<Float32Array[]> {
    const given = inspect("embed", () => [copied(texts), { ...copied(options) }] as const);
    const states = (ids: Uint32Array, own: HiddenStatesOptions) => this.hiddenStates(ids, own);
    const { embed } = await deferredPart();
    return embed({ config: this.config, handle: this.#handle, states }, ...given);
  }

  /**
   * The numbers of a parameter, in the checkpoint's order, row by row. Of a model that holds its matrices packed they
   * are what its codes stand for.
   *
   * @param name - one of {@link Model.parameters}, such as `"model.norm.weight"`.
   * @throws {@link TinyloomError} `invalid-options`, `out-of-memory`.
   */
  async parameter(name: string): Promise<Float32Array> {
    return (await deferredPart()).parameter(this.#inner, name);
  }

  /**
   * Replaces the numbers of a parameter. A matrix of a packed model is packed again. A lost device brings them back. An
   * optimizer's moments stay as they are.
   *
   * @param values - as many as the shape says, finite, in the checkpoint's order. They are copied.
   * @throws {@link TinyloomError} `invalid-options`.
   *
   * @example
   * ```ts
   * const bias = await model.parameter("model.layers.0.self_attn.q_proj.bias");
   * await model.setParameter("model.layers.0.self_attn.q_proj.bias", bias.map((x) => x / 2));
   * ```
   */
  async setParameter(name: string, values: Float32Array | readonly number[]): Promise<void> {
    const own = inspect("setParameter", () => copied(values));
    return (await deferredPart()).setParameter(this.#inner, name, own);
  }

  async #look<O extends InferenceOptions>(
    look: string,
    tokens: TokenIds,
    options: O,
    rules: Rules<O>,
  ): Promise<Float32Array> {
    const [long, json] = inference(look, options, rules, this.weights, look);
    const ids = toSomeTokens("tokens", tokens, this.config);
    const { signal } = long;
    return withOver(overOf(this.#inner, long), (handle) =>
      handle.run(async (raw) => {
        const changed = await intervened(look, long, raw, ids);
        return watched(look, long, (ask) => raw.inspect(ids, json, ask, changed));
      }, signal),
    );
  }

  /**
   * Compiles what a first text of {@link Model.generate} or {@link Model.generateBatch} would compile, which takes seconds
   * on a slow machine. Nothing is allocated, and no text is read. Calls on the model that come meanwhile wait.
   *
   * @throws {@link TinyloomError} `invalid-options`, `invalid-tokens`, `limit-exceeded`, `aborted`.
   *
   * @example
   * ```ts
   * await model.prepare({ generate: true, onProgress: ({ loaded, total }) => show(loaded / total) });
   * ```
   */
  async prepare(options: PrepareOptions): Promise<void> {
    const own = inspect("prepare", () => copied(options));
    return (await deferredPart()).prepare(this.#inner, this, own);
  }

  /**
   * Continues the prompt token by token, until the model ends its text. Leaving the loop ends the work; other calls
   * on the model may come between tokens. Prompt and options are those of the call; errors come from the loop.
   *
   * @param prompt - at least one token; or a text, with the option `tokenizer`. `text` then goes on from it.
   * @returns the tokens, with the `seed` that they are drawn with.
   *
   * @throws {@link TinyloomError} `invalid-tokens`, `invalid-options`, `limit-exceeded`, `aborted`, and
   * `non-finite` where the logits are not finite, after the tokens before that.
   *
   * @example
   * ```ts
   * const story = model.generate("Once", { tokenizer, maxTokens: 100 });
   * for await (const { text } of story) output.append(text);
   * console.log(story.seed); // given as an option, the same story
   * ```
   */
  generate(
    prompt: TokenIds | string,
    options: GenerateOptions & { tokenizer: TextDecoding; alternatives: number },
  ): Generation<With<GeneratedToken, "text" | "alternatives">>;
  generate(
    prompt: TokenIds | string,
    options: GenerateOptions & { tokenizer: TextDecoding },
  ): Generation<With<GeneratedToken, "text">>;
  generate(
    prompt: TokenIds | string,
    options: GenerateOptions & { alternatives: number },
  ): Generation<With<GeneratedToken, "alternatives">>;
  generate(prompt: TokenIds | string, options?: GenerateOptions): Generation;
  generate(prompt: TokenIds | string, options: GenerateOptions = {}): Generation {
    return generation(this, prompt, options);
  }

  /**
   * Continues several prompts at once: each pass over the model decodes a token of every text, so that sixteen texts
   * take little longer than one. Each is the text that `generate` gives for its prompt and options, whatever the
   * others are, up to the rounding of sums in another order. Tokens of all texts come in one order; `index` says
   * whose each is. Leaving the loop ends the work.
   *
   * The texts have a key-value cache of their own, with room for the longest prompt and its `maxTokens` in each.
   *
   * @param prompts - 1 to 256 prompts, with options of their own where they have some.
   * @throws {@link TinyloomError} as {@link Model.generate}, and `out-of-memory` for texts that do not fit together.
   * `non-finite` comes when the other texts have ended, and names the prompt.
   *
   * @example
   * ```ts
   * const prompts = [tokenizer.encode("Once"), { prompt: tokenizer.encode("Red"), seed: 7, maxTokens: 20 }];
   * const texts = prompts.map(() => "");
   * for await (const { index, text } of model.generateBatch(prompts, { tokenizer })) texts[index] += text;
   * ```
   */
  generateBatch(
    prompts: readonly (TokenIds | string | BatchPrompt)[],
    options: BatchOptions & { tokenizer: TextDecoding },
  ): BatchGeneration<With<BatchToken, "text">>;
  generateBatch(
    prompts: readonly (TokenIds | string | BatchPrompt)[],
    options?: BatchOptions,
  ): BatchGeneration;
  generateBatch(
    prompts: readonly (TokenIds | string | BatchPrompt)[],
    options: BatchOptions = {},
  ): BatchGeneration {
    return batchGeneration(this, prompts, options);
  }

  /**
   * The checkpoint's files, and `generation_config.json` where the model was loaded with one; weights are in `dtype`.
   * transformers loads them as they are, those of `model_type: "tinyloom"` with `trust_remote_code=True`: they have
   * `modeling_tinyloom.py` beside them. With `to` they are
   * written to a directory or to streams as they are read back, and nothing holds a file whole.
   *
   * With `format: "gguf"` they are one file, `model.gguf`, which llama.cpp and what is built on it load. What
   * llama.cpp would compute otherwise is refused. `docs/guides/checkpoints.md` says how the file is made.
   *
   * @throws {@link TinyloomError} `aborted`, `device-lost`, `invalid-options` for a stream that fails, where the
   * model holds its matrices packed, and for what a GGUF file cannot be of, `non-finite` for weights in it that are
   * not finite, `storage-full`, `out-of-memory`.
   *
   * @example
   * ```ts
   * const directory = await navigator.storage.getDirectory();
   * await model.save({ to: directory });
   * await model.save({ to: directory, format: "gguf", type: "q8_0", tokenizer });
   * ```
   */
  save(options: ModelSaveOptions & { to: SaveTarget }): Promise<undefined>;
  save(options: GgufOptions & LongOptions & { format: "gguf" }): Promise<GgufFiles>;
  save(options?: LongOptions & DtypeOptions & { format?: "safetensors" }): Promise<ModelFiles>;
  async save(options: ModelSaveOptions = {}): Promise<Files> {
    const chosen = saveOptions(options, MODEL_FILES, FORMAT);
    return this.#handle.run(async (raw) => {
      const { saveWeights } = await deferredPart();
      const adapted = [...this.#owned].some(({ lora }) => lora);
      const files = await saveWeights<Files>(chosen, this.#inner, raw, adapted);
      this.#inner.recovery?.saved(chosen);
      return files;
    }, chosen.signal);
  }

  /**
   * Frees the GPU memory of the model, of its adapters and of their trainers. Later calls fail with code "freed". A second
   * `free()` does nothing.
   */
  free(): void {
    endWith("freed with its Model", this.#owned);
    this.#handle.free();
    this.#inner.recovery?.end();
    this.#inner.runtime.disown(this);
  }

  /** Frees the model, as the end of a `using` block does. */
  declare readonly [Symbol.dispose]: () => void;
  /** Frees the model and waits until its running operation has ended: for `await using`. */
  declare readonly [Symbol.asyncDispose]: () => Promise<void>;

  static {
    adoptModel = (...parts) => new Model(MADE, ...parts);
    disposable(Model.prototype, {
      end: (model) => model.free(),
      settled: (model) => model.#handle.settled(),
    });
  }
}

/** What a call changes, as the module takes it. */
const intervened = async (
  where: string,
  { interventions }: Intervened,
  raw: RawModel,
  { length: positions }: Uint32Array,
) =>
  interventions && (await deferredPart()).interventionsOf(where, interventions, raw, { positions });
