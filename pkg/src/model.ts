import type { Biases } from "./decoding.js";
import { disposable } from "./dispose.js";
import { isTinyloomError, throwIfAborted, toError } from "./error.js";
import {
  adapter,
  type GenerateCall,
  type GeneratedToken,
  type GenerateOptions,
  generateCall,
  type KvCache,
  kvCache,
  type WeightFormat,
  weights,
} from "./generate.js";
import { end, Handle, Queue } from "./handle.js";
import { type InnerModel, models, runtimes } from "./internal.js";
import { morePart } from "./lazy.js";
import type { Adapter } from "./lora.js";
import { check, index, invalid, isA, object, type Rules, seed, show } from "./options.js";
import type { Ask, RawGeneration, RawModel, RawModule, RawRuntime, Seen } from "./raw.js";
import type { Origin } from "./recovery/journal.js";
import { Runtime } from "./runtime.js";
import {
  MODEL_FILES,
  type RunHandle,
  type SaveOptions,
  type SaveTarget,
  saveOptions,
} from "./save.js";
import {
  type CheckpointFiles,
  CONFIG_BYTES,
  LOAD,
  LONG,
  type LoadOptions,
  type LongOptions,
  openSource,
} from "./source.js";
import { type TokenIds, toSomeTokens } from "./tokens.js";
import { evaluated, watched } from "./watch.js";

/** Scaling of the rotary embedding. Which fields a type needs is as in transformers. */
export interface RopeParameters {
  rope_type?: "default" | "linear" | "llama3" | "yarn";
  rope_theta?: number;
  /** The same in layers with a window (Gemma 3). */
  rope_local_base_freq?: number;
  factor?: number;
  low_freq_factor?: number;
  high_freq_factor?: number;
  original_max_position_embeddings?: number;
  attention_factor?: number | null;
  beta_fast?: number | null;
  beta_slow?: number | null;
  truncate?: boolean;
  [name: string]: unknown;
}

/**
 * A model's config, with the names of Hugging Face's `config.json`. What is left out defaults as in
 * transformers; what tinyloom does not compute is refused by name with code "invalid-config".
 */
export interface ModelConfig {
  model_type?: "llama" | "mistral" | "qwen2" | "qwen3" | "gemma" | "gemma2" | "gemma3_text";
  vocab_size?: number;
  hidden_size?: number;
  intermediate_size?: number;
  num_hidden_layers?: number;
  num_attention_heads?: number;
  /** Heads of keys and values; `num_attention_heads` must be a multiple. */
  num_key_value_heads?: number;
  /** Width of a head, a multiple of 4 up to 256; default `hidden_size / num_attention_heads`. */
  head_dim?: number;
  max_position_embeddings?: number;
  rms_norm_eps?: number;
  rope_theta?: number;
  /** The same in layers with a window (Gemma 3). */
  rope_local_base_freq?: number;
  /** How RoPE reaches longer texts, as transformers 5 has it; its version 4 calls it `rope_scaling`. */
  rope_parameters?: RopeParameters | null;
  rope_scaling?: RopeParameters | null;
  tie_word_embeddings?: boolean;
  /** `"swish"` is `"silu"`, and `"gelu_new"` is `"gelu_pytorch_tanh"`. Default `"silu"`. */
  hidden_act?: "silu" | "swish" | "gelu" | "gelu_pytorch_tanh" | "gelu_new";
  /** The same, as Gemma 2 and 3 call it. Default `"gelu_pytorch_tanh"`. */
  hidden_activation?: "silu" | "swish" | "gelu" | "gelu_pytorch_tanh" | "gelu_new";
  initializer_range?: number;
  /**
   * A position sees at most this many of the latest positions, itself included (Mistral). The cache of
   * `generate` then keeps only these and one chunk of the prompt, for a text of any length.
   */
  sliding_window?: number | null;
  /**
   * Which layers of Gemma 2 and 3 have that window, one for each layer. If it is left out: every other
   * layer, in Gemma 3 five of six.
   */
  layer_types?: ("sliding_attention" | "full_attention")[] | null;
  /**
   * Attention scores become `cap · tanh(score / cap)`. `save()` keeps this field, and notes in the saved
   * config where transformers' model ignores it; that of Gemma 2 reads it.
   */
  attn_logit_softcapping?: number | null;
  /** Logits become `cap · tanh(logit / cap)` (Gemma 2). */
  final_logit_softcapping?: number | null;
  /** Attention scores are divided by its square root (Gemma 2 and 3); elsewhere by that of `head_dim`. */
  query_pre_attn_scalar?: number;
  [name: string]: unknown;
}

/** Options of {@link Model.create}. */
export interface ModelOptions extends LongOptions {
  /** Seed of the initial weights, an unsigned 32-bit number; default 0. */
  seed?: number;
}

/** Options of {@link Model.logits} and {@link Model.loss}. `onProgress` counts tokens. */
export interface InferenceOptions extends LongOptions {
  /**
   * The format of the keys and values that attention reads, as in {@link GenerateOptions}. The loss
   * shows what a packed cache costs a model. Default "f32".
   */
  kvCache?: KvCache;
  /** The format in which matrices are read, as in {@link GenerateOptions}. Default "f32". */
  weights?: WeightFormat;
  /** An adapter of the model; without it the model alone is asked. */
  adapter?: Adapter;
}

/** Options of {@link Model.hiddenStates}. */
export interface HiddenStatesOptions extends InferenceOptions {
  /**
   * Which hidden state, counted as transformers counts `output_hidden_states`: 0 is the embedding, i the
   * output of the first i layers, and `num_hidden_layers` the output of the last layer behind the final
   * norm.
   */
  layer: number;
}

/** Options of {@link Model.attention}. */
export interface ModelAttentionOptions extends InferenceOptions {
  /** The layer, from 0 to `num_hidden_layers - 1`. */
  layer: number;
  /** The head of queries, from 0 to `num_attention_heads - 1`. */
  head: number;
}

/** Files of {@link Model.save}. */
export interface ModelFiles {
  [name: string]: Uint8Array<ArrayBuffer>;
  "config.json": Uint8Array<ArrayBuffer>;
  "model.safetensors": Uint8Array<ArrayBuffer>;
}

const MODEL: Rules<ModelOptions> = { seed, ...LONG };

const INFERENCE: Rules<InferenceOptions> = { kvCache, weights, adapter, ...LONG };
const STATES: Rules<HiddenStatesOptions> = { ...INFERENCE, layer: index };
const ATTENTION: Rules<ModelAttentionOptions> = { ...STATES, head: index };

/** A model of the module's, which was made on that raw runtime. @internal */
export let adoptModel: (runtime: Runtime, raw: RawModel, on: RawRuntime, origin: Origin) => Model;

/**
 * A transformer language model on a runtime. Its operations, and those of its trainers, run one
 * after the other in the order of the calls.
 */
export class Model {
  readonly #inner: InnerModel;
  readonly #handle: Handle<RawModel>;
  /** Its trainers and adapters. */
  readonly #owned = new Set<{ free(): void }>();
  /** The config in full, with every default filled in. */
  readonly config: Readonly<ModelConfig>;

  private constructor(runtime: Runtime, raw: RawModel, on: RawRuntime, origin: Origin) {
    const queue = new Queue();
    const inner = runtimes.of(runtime);
    const handle = new Handle("Model", raw, queue, inner.module);
    this.#handle = handle;
    const journal = inner.recovery?.journal({ handle, queue, on, origin });
    handle.guard = journal;
    this.#inner = models.set(this, {
      runtime: inner,
      names: MODEL_FILES,
      queue,
      handle,
      journal,
      own: (one) => this.#owned.add(one),
      disown: (one) => this.#owned.delete(one),
    });
    this.config = Object.freeze(JSON.parse(raw.config()) as ModelConfig);
    this.#inner.runtime.own(this);
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
    const create = (raw: RawRuntime, module: RawModule, long: LongOptions) =>
      watched("Model.create", long, (ask: Ask) =>
        module.RawModel.create(raw, json, chosen.seed ?? 0, ask),
      );
    return runtimes.of(runtime).lasting(async (raw, module) => {
      const again = async (on: RawRuntime) => ({ model: await create(on, module, {}) });
      return new Model(runtime, await create(raw, module, chosen), raw, { again, seeded: true });
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
   * Loads a checkpoint of F32, F16 or BF16 safetensors, in one file or sharded. The config is judged
   * first, then the files' headers, then the GPU's memory: no tensor is read before that. Tensors pass
   * in pieces of a few megabytes; a server that answers to `Range` is asked only for what is needed.
   *
   * @param source - a base URL, under which `config.json` and `model.safetensors` lie (in Node also
   * a folder's `file:` URL), an object of files by name, or a run of `tinyloom/storage`. Bytes are not
   * copied: they must not change until the promise settles.
   * @throws {@link TinyloomError} `invalid-checkpoint`, `invalid-config`, `limit-exceeded`,
   * `out-of-memory`, `aborted`.
   */
  static async fromPretrained(
    runtime: Runtime,
    source: string | URL | CheckpointFiles | RunHandle,
    options: LoadOptions = {},
  ): Promise<Model> {
    expectRuntime("Model.fromPretrained", runtime);
    const chosen = check("Model.fromPretrained", options, LOAD);
    const files = openSource("Model.fromPretrained", source, chosen);
    const load = async (raw: RawRuntime, module: RawModule, long: LongOptions, seen: Seen) => {
      const { loadWeights } = await morePart();
      const loader = (config: string) => new module.RawLoader(raw, config);
      return loadWeights({ module, source: files, names: MODEL_FILES, loader }, long, seen);
    };
    return runtimes.of(runtime).lasting(async (raw, module) => {
      const seen = { sum: 0 };
      const model = await load(raw, module, chosen, seen);
      const again = async (on: RawRuntime, by: Seen) => ({ model: await load(on, module, {}, by) });
      return new Model(runtime, model, raw, { again, seen });
    }, chosen.signal);
  }

  /** How many weights there are; tied embeddings count once. */
  get parameterCount(): number {
    return this.#handle.now((raw) => raw.parameterCount());
  }

  /** Bytes of GPU memory in use by the model and its trainers. */
  get gpuBytes(): number {
    return this.#handle.now((raw) => raw.gpuBytes());
  }

  /**
   * The logits at each position.
   *
   * @param tokens - 1 to `max_position_embeddings` ids, as one document.
   * @returns `tokens.length × vocab_size` numbers, one row per position.
   * @throws {@link TinyloomError} `invalid-tokens`, `invalid-options`, `limit-exceeded`, `aborted`.
   */
  async logits(tokens: TokenIds, options: InferenceOptions = {}): Promise<Float32Array> {
    return this.#look("logits", tokens, options, INFERENCE);
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
    const [long, json] = inferenceOptions("loss", options, INFERENCE);
    const ids = toSomeTokens("tokens", tokens);
    const wanted = targets === undefined ? undefined : toSomeTokens("targets", targets);
    return this.#over(long.adapter).run(
      (raw) => watched("loss", long, (ask) => raw.loss(ids, wanted, json, ask)),
      long.signal,
    );
  }

  /**
   * The hidden state of each position behind some layers, as transformers gives it with
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

  /** The model, or with an adapter over it. */
  #over(adapter: Adapter | undefined): Handle<RawModel> {
    if (!adapter) return this.#handle;
    const { base, handle } = models.of(adapter);
    if (base === this) return handle;
    throw invalid("adapter is of another model; give one that was created on this model");
  }

  #look<O extends InferenceOptions>(
    look: string,
    tokens: TokenIds,
    options: O,
    rules: Rules<O>,
  ): Promise<Float32Array> {
    const [long, json] = inferenceOptions(look, options, rules, look);
    const ids = toSomeTokens("tokens", tokens);
    const { signal } = long;
    return this.#over(long.adapter).run(
      (raw) => watched(look, long, (ask) => raw.look(ids, json, ask)),
      signal,
    );
  }

  /**
   * Continues the prompt token by token. Leaving the loop ends the work; other calls on the model
   * may come between tokens. Prompt and options are those of the call; errors come from the loop.
   *
   * @throws {@link TinyloomError} `invalid-tokens`, `invalid-options`, `limit-exceeded`, `aborted`, and
   * `non-finite` where the logits are not finite, after the tokens before that.
   *
   * @example
   * ```ts
   * const decoder = tokenizer.decoder();
   * for await (const { token } of model.generate(tokenizer.encode("Once"), { maxTokens: 100 })) {
   *   output.append(decoder.push(token));
   * }
   * ```
   */
  generate(
    prompt: TokenIds,
    options: GenerateOptions = {},
  ): AsyncGenerator<GeneratedToken, void, undefined> {
    const call = evaluated(() => generateCall(prompt, options));
    return this.#generate(call);
  }

  async *#generate(call: () => GenerateCall) {
    const { signal, tokenizer, stop, bias, alternatives, maxTokens, ids, json, adapter } = call();
    const handle = this.#over(adapter);
    throwIfAborted(signal, "generate");
    const more = tokenizer || bias ? await morePart() : undefined;
    const withText = tokenizer && more?.withText(tokenizer, stop);
    const { vocab_size: vocabulary, max_position_embeddings: positions } = this.config;
    const most = ids.length + maxTokens;
    const biases =
      bias && more?.biases(bias, vocabulary as number, ids, Math.min(most, positions as number));
    const drawn: number[] = [];
    let by: RawModel | undefined;
    let generation: RawGeneration | undefined;
    /** The first time, or after a lost device: then behind the tokens that were drawn before. */
    const started = async (raw: RawModel): Promise<RawGeneration> => {
      if (generation && by === raw) return generation;
      if (generation) end(generation);
      generation = undefined;
      const text = Uint32Array.from([...ids, ...drawn]);
      const options = JSON.stringify({ ...JSON.parse(json), drawn: drawn.length });
      by = raw;
      generation = await raw.generate(text, options, biases?.fixed);
      return generation;
    };
    const next = (bias?: Float32Array) =>
      handle.run(async (raw) => {
        const pairs = await (await started(raw)).next(bias);
        for (let at = 0; at < pairs.length; at += 2 + 2 * alternatives) {
          drawn.push(pairs[at] as number);
        }
        return pairs;
      }, signal);
    await handle.run(async (raw) => void (await started(raw)), signal);
    try {
      const tokens = this.#tokens(next, signal, alternatives, biases);
      yield* withText ? withText(tokens) : tokens;
    } finally {
      await this.#inner.queue.run(() => generation && end(generation));
    }
  }

  async *#tokens(
    next: (bias?: Float32Array) => Promise<Float64Array>,
    signal: AbortSignal | undefined,
    alternatives: number,
    biases: Biases | undefined,
  ): AsyncGenerator<GeneratedToken, void, undefined> {
    for (;;) {
      throwIfAborted(signal, "generate");
      const bias = await biases?.next?.();
      throwIfAborted(signal, "generate");
      const pairs = await next(bias);
      if (pairs.length === 0) return;
      const choice = (index: number) => ({
        token: pairs[2 * index] as number,
        logprob: pairs[2 * index + 1] as number,
      });
      for (let index = 0; 2 * index < pairs.length; index += 1 + alternatives) {
        throwIfAborted(signal, "generate");
        const drawn = choice(index);
        biases?.drew(drawn.token);
        const others = (_: unknown, place: number) => choice(index + 1 + place);
        yield alternatives
          ? { ...drawn, alternatives: Array.from({ length: alternatives }, others) }
          : drawn;
      }
    }
  }

  /**
   * The checkpoint's files, with weights in F32. transformers loads them as they are. With `to` they are
   * written to a directory or to streams as they are read back, and nothing holds a file whole.
   *
   * @throws {@link TinyloomError} `aborted`, `device-lost`, `invalid-options` for a stream that fails,
   * `storage-full`, `out-of-memory`.
   *
   * @example
   * ```ts
   * const directory = await navigator.storage.getDirectory();
   * await model.save({ to: directory });
   * ```
   */
  save(options: SaveOptions & { to: SaveTarget }): Promise<undefined>;
  save(options?: LongOptions): Promise<ModelFiles>;
  async save(options: SaveOptions = {}): Promise<ModelFiles | undefined> {
    const chosen = saveOptions(options, MODEL_FILES);
    return this.#handle.run(async (raw) => {
      const { save } = await morePart();
      const files = await save<ModelFiles | undefined>(chosen, {
        names: MODEL_FILES,
        config: raw.config(),
        weights: raw,
      });
      this.#inner.journal?.saved(chosen);
      return files;
    }, chosen.signal);
  }

  /**
   * Frees the GPU memory of the model, of its adapters and of their trainers. Later calls fail with code "freed". A second
   * `free()` does nothing.
   */
  free(): void {
    for (const one of [...this.#owned]) one.free();
    this.#handle.free();
    this.#inner.journal?.end();
    this.#inner.runtime.disown(this);
  }

  /** Frees the model, as the end of a `using` block does. */
  declare readonly [Symbol.dispose]: () => void;
  /** Frees the model and waits until its running operation has ended: for `await using`. */
  declare readonly [Symbol.asyncDispose]: () => Promise<void>;

  static {
    adoptModel = (...parts) => new Model(...parts);
    disposable(Model.prototype, {
      end: (model) => model.free(),
      settled: (model) => model.#handle.settled(),
    });
  }
}

/** The checked options, and the module's own of them as JSON. */
function inferenceOptions<O extends InferenceOptions>(
  where: string,
  options: O,
  rules: Rules<O>,
  look?: string,
): [O, string] {
  const chosen = check(where, options, rules);
  return [chosen, JSON.stringify({ ...chosen, signal: undefined, adapter: undefined, look })];
}

/** The config's JSON text; what JSON cannot hold is refused by name, since it would be left out. */
export function configJson(where: string, config: unknown): string {
  const refuse = (message: string, cause?: unknown) =>
    invalid(`${where}: ${message}`, "invalid-config", cause);
  const long = () =>
    refuse(
      `the config takes more than ${CONFIG_BYTES} bytes as JSON; take out the fields that are not the model's`,
    );
  // Counted as it is made: the text of what is far too large is never whole.
  let length = 0;
  const keep = (name: string, value: unknown) => {
    const type = typeof value;
    if (type === "number" ? !Number.isFinite(value) : /^(bigint|function|symbol)$/.test(type)) {
      throw refuse(`config field ${show(name)} is ${show(value)}; give what JSON can hold`);
    }
    length += name.length + (type === "string" ? (value as string).length : 1);
    if (length > CONFIG_BYTES) throw long();
    return value;
  };
  let json: string | undefined;
  try {
    if (object(config) !== undefined) {
      throw refuse(`give a plain config object, not ${show(config)}`);
    }
    json = JSON.stringify(config, keep);
  } catch (cause) {
    throw isTinyloomError(cause)
      ? cause
      : refuse(`the config cannot be made JSON (${show(cause)})`, cause);
  }
  if (json === undefined) throw refuse("the config's toJSON gives nothing");
  if (json.length > CONFIG_BYTES) throw long();
  return json;
}

/** Refuses anything but a runtime, for callers without types. @internal */
export function expectRuntime(where: string, runtime: unknown): asserts runtime is Runtime {
  if (!isA(runtime, Runtime)) {
    throw invalid(`${where} takes a Runtime first, not ${show(runtime)}; await Runtime.create()`);
  }
}
