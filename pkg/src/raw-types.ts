/**
 * The typed boundary to the wasm module: what `src/web` exports through wasm-bindgen. Methods throw or reject with a plain
 * `{ code, message }`; JSON crosses as text.
 */

import type { WeightFormat } from "./formats.js";
import type { InstanceLife } from "./instance-life.js";
import type { ModelNotes } from "./notes.js";

/** What takes tensors: the raw loaders of weights and of optimizer state. */
export interface TensorSink {
  /** The longest header that a file may have, in bytes. */
  headerLimit(): number;
  addFile(name: string, header: Uint8Array, fileLength: number): string;
  /** Takes the next bytes of a tensor, from its byte `begin` on. */
  setPiece(name: string, begin: number, bytes: Uint8Array): void;
  /** Takes blocks of ggml, by the number of their type, which are a matrix's from its element `start` on. */
  setBlocks?(name: string, start: number, type: number, bytes: Uint8Array): void;
  /** Is told the CRC-32 of each tensor, whose last piece it has taken. */
  summed?(sum: number): void;
}

/** What the module reads tokens from. */
export interface TokenReader {
  readonly length: number;
  /** Whether only some of the tokens are learned. */
  readonly masked?: boolean;
  /** The tokens from `start` on; as targets, with IGNORE_INDEX where a token is not to be learned. */
  read(start: number, length: number, targets: boolean): Uint32Array;
}

/** A raw object: `release` gives back what it holds, `free` the object itself. */
export interface Releasable {
  release(): void;
  free(): void;
}

/**
 * Asked between the pieces of a long call with what is done, what there is in all and what comes next;
 * true ends the call with code "aborted".
 */
export type Ask = (loaded: number, total: number, stage: string) => boolean;

export interface RawRuntime extends Releasable {
  device(): GPUDevice;
  /** The buffer of a number that {@link AskGradient} was given. */
  buffer(id: number): GPUBuffer;
  capabilities(): string;
  lost(): Promise<string>;
  counters(): string;
  /** Has products measured, except those that `tuned` once gave for this adapter. */
  tune(known: Float64Array): void;
  /** What has been measured, as numbers. */
  tuned(): Float64Array;
  /** A zeroed buffer for this number of elements. */
  tensor(elements: number, element: "f32" | "f16"): RawTensor;
  /** Judges a call, and copies what it needs: `fields.ts` has numbers and fields. */
  operation(number: number, fields: Float64Array, dense?: Uint8Array): RawOperation;
}

/** An operation that has been judged. It ends with `run`, or else with `free`. */
export interface RawOperation {
  /** Queues it. `made` are the numbers of the tensors that were made for it. */
  run(made: Uint32Array): Promise<void>;
  free(): void;
}

/** A GPU buffer. Offsets and lengths in bytes, multiples of 4. */
export interface RawTensor extends Releasable {
  id(): number;
  buffer(): GPUBuffer;
  /** Resolves when the device is known to have memory for it. */
  allocated(): Promise<void>;
  /** Begins writes, which end with `written` in the same task. */
  begin(): void;
  write(offset: number, bytes: Uint8Array): void;
  /** Ends writes; tells whether the device accepted them. */
  written(): Promise<void>;
  read(offset: number, bytes: number): Promise<Uint8Array>;
}

export interface RawLoader extends Releasable, TensorSink {
  /** Makes the model's buffers, once all headers are in. */
  allocate(): Promise<void>;
  finish(): Promise<RawModel>;
}

/** A file that is written piece by piece: its header, then each tensor's bytes in order. */
export interface RawWriter {
  saveHeader(): Uint8Array;
  tensorCount(): number;
  /** Some of a tensor's bytes; whole elements. */
  readPiece(index: number, begin: number, end: number): Promise<Uint8Array>;
}

/** A copy of weights, or of a trainer's state, at one moment. */
export interface RawSnapshot extends Releasable {
  saveHeader(): Uint8Array;
  /** Bytes of the data that follow the header. */
  read(begin: number, end: number): Promise<Uint8Array>;
  /** The state of the trainer that was copied. */
  state(): Promise<string>;
}

export interface RawModel extends Releasable, RawWriter {
  /** The text of `config.json`, or of `adapter_config.json`. */
  config(): string;
  /** The format in which it holds its matrices. */
  weights(): string;
  /** Whether it can be saved: of a packed model, only where no matrix could be packed. */
  isSaved(): boolean;
  /** Whether its checkpoints have matrices as `[in, out]`. */
  hasInputsFirst(): boolean;
  parameterCount(): number;
  /** Names and shapes of its tensors, as JSON: `[name, shape]` each. */
  tensors(): string;
  /** A tensor in the checkpoint's order. */
  readNamed(name: string): Promise<Float32Array>;
  writeNamed(name: string, values: Float32Array): Promise<void>;
  gpuBytes(): number;
  /** Logits, hidden states or attention: `look` in the options says which. */
  inspect(
    tokens: Uint32Array,
    optionsJson: string,
    ask: Ask,
    interventions?: RawInterventions | null,
  ): Promise<Float32Array>;
  /** What one call changes, which takes it over. */
  interventions(json: string, vectors: Float32Array): RawInterventions;
  /** All that there is of kinds: `[kind, layer]` each, as JSON. */
  capturedOf(kindsJson: string): string;
  /** What layers compute, in the order in which the options list it. */
  capture(
    tokens: Uint32Array,
    optionsJson: string,
    ask: Ask,
    interventions?: RawInterventions | null,
  ): Promise<unknown[]>;
  /** Gradients of a logit by states, in the order of the layers in the options. */
  attribute(tokens: Uint32Array, optionsJson: string, ask: Ask): Promise<unknown[]>;
  loss(
    tokens: Uint32Array,
    targets: Uint32Array | undefined,
    optionsJson: string,
    ask: Ask,
    interventions?: RawInterventions | null,
  ): Promise<number>;
  /** Log-probabilities of targets; as the options say entropies, likeliest tokens and their probabilities. */
  score(
    tokens: Uint32Array,
    targets: Uint32Array | undefined,
    documents: Uint32Array | undefined,
    optionsJson: string,
    ask: Ask,
    interventions?: RawInterventions | null,
  ): Promise<unknown[]>;
  /** Begins a generation. `bias` has a number for each token. */
  generate(
    prompt: Uint32Array,
    optionsJson: string,
    bias?: Float32Array,
    interventions?: RawInterventions | null,
  ): Promise<RawGeneration>;
  /** Compiles what a generation will need: of `sequences` texts, of `tokens` tokens each. */
  prepare(
    optionsJson: string,
    sequences: number,
    tokens: number,
    ask: Ask,
    interventions?: RawInterventions | null,
  ): Promise<void>;
  /** Begins a generation of several prompts, one after the other. */
  batch(
    tokens: Uint32Array,
    lengths: Uint32Array,
    optionsJson: string,
    interventions?: RawInterventions | null,
  ): RawBatchGeneration;
  /** Copies the weights at once. */
  snapshot(): Promise<RawSnapshot>;
  /** A new adapter over it. */
  adapt(optionsJson: string, ask: Ask): Promise<RawModel>;
  /** What takes the tensors of the adapter that PEFT's config describes. */
  adaptAs(configJson: string, dropout?: number): Promise<RawLoader>;
  /** How an adapter was made; a model has none. */
  adapterOptions(): string;
  /** What judges the files of the checkpoint that this model was loaded from; its tensors go nowhere. */
  checker(configJson: string): RawLoader;
  /** Adds an adapter to its base and frees it. */
  merge(ask: Ask): Promise<void>;
}

/** What a call changes on the way to the logits. */
export interface RawInterventions {
  free(): void;
}

export interface RawBatchGeneration extends Releasable {
  /**
   * A text's number, a token and its log-probability, of each draw; of each text that has ended its number, -1 and
   * 0. Empty when all have.
   */
  next(ask: Ask): Promise<Float64Array>;
  /** Ends a text. */
  end(index: number): void;
}

export interface RawGeneration extends Releasable {
  /** Pairs of token and log-probability: a draw, then the alternatives to it. */
  next(bias?: Float32Array): Promise<Float64Array>;
}

export type RawDataset = Releasable;

/** The metrics of a step in the order of `metrics.ts`. A step that ends no accumulation has NaN for its norm. */
export type RawMetrics = Float64Array;

/**
 * Is given numbers, their first row and how many rows they are, and where their gradient lies on the GPU: the number of the
 * buffer, the offset, and the bytes from row to row. Gives the gradient, null where it has written it there, and the loss.
 */
export type AskGradient = (
  values: Float32Array,
  first: number,
  rows: number,
  place: Float64Array | undefined,
) => Promise<[Float32Array | null, number]>;

export interface RawTrainer extends Releasable, RawWriter {
  options(): string;
  schedule(): string;
  /** Optimizer steps done, those on their way among them. */
  steps(): number;
  setLearningRate(learningRate: number): void;
  /**
   * A step. With an objective of its own: its numbers as JSON, its weights, and of soft targets all ids, then the bits of
   * their probabilities.
   */
  step(
    tokens: Uint32Array,
    targets: Uint32Array,
    documents: Uint32Array | undefined,
    objectiveJson?: string,
    weights?: Float32Array,
    soft?: Uint32Array,
  ): Promise<RawMetrics>;
  /** A step whose gradient by logits or by states, and loss, `ask` gives of some rows at a time. */
  stepGiven(
    tokens: Uint32Array,
    documents: Uint32Array | undefined,
    divisor: number,
    byStates: boolean,
    ask: AskGradient,
  ): Promise<RawMetrics>;
  stepDataset(dataset: RawDataset, stop: () => boolean): Promise<RawMetrics>;
  queueDataset(dataset: RawDataset): Promise<RawMetrics>;
  expectWholeSteps(): void;
  setTotalSteps(total: number | undefined): void;
  /** Exchanges weights and their averages. */
  exchangeAverages(): Promise<void>;
  evaluationBatches(dataset: RawDataset): number;
  evaluateBatch(dataset: RawDataset, index: number): Promise<Float64Array>;
  gradientSizes(): string;
  readGradient(index: number): Promise<Float32Array>;
  state(): Promise<string>;
  /** The plan as JSON, or the WGSL of a row. */
  plan(row?: number): string;
  profile(ask: Ask): Promise<string>;
  activationBytes(): Float64Array;
  /** Copies moments and state at once; not in the middle of an accumulation. */
  snapshot(): Promise<RawSnapshot> | undefined;
}

export interface RawResume extends Releasable, TensorSink {
  /** Makes a trainer of the loader's model, which is allocated. */
  allocate(loader: RawLoader, ask: Ask): Promise<void>;
  finish(): Promise<RawTrainer>;
}

/** An instance of the module. One that panicked is followed by another. */
export type RawModule = RawExports & InstanceLife;

/** The module's exports. */
export interface RawExports {
  onPanic(told: (message: string) => void): void;
  hasRoom(bytes: number): boolean;
  RawRuntime: {
    create(gpu: object, adapter: object, optionsJson: string): Promise<RawRuntime>;
    version(): string;
    /** Numbers of a product in `tuned`, how many of the first are its shape's, the format's number. */
    tunedFormat(): Float64Array;
  };
  RawLoader: new (runtime: RawRuntime, configJson: string, weights?: WeightFormat) => RawLoader;
  RawModel: {
    create(runtime: RawRuntime, configJson: string, seed: number, ask: Ask): Promise<RawModel>;
    countParameters(configJson: string): number;
    estimate(configJson: string, optionsJson: string, capabilitiesJson?: string): string;
  };
  /** Tokens that are read as they are needed; with the first of each document, or one text. */
  RawDataset: new (
    tokens: TokenReader,
    starts: Uint32Array | undefined,
    optionsJson: string,
  ) => RawDataset;
  RawTrainer: {
    create(model: RawModel, optionsJson: string, ask: Ask): Promise<RawTrainer>;
    prepare(on: RawRuntime, configJson: string, optionsJson: string, ask: Ask): Promise<void>;
  };
  RawResume: new (loader: RawLoader, stateJson: string) => RawResume;
}

/** Tells what was loaded from what is loaded again. */
export interface Seen {
  sum: number;
  /** What the files of a model say besides. */
  notes?: ModelNotes;
}
