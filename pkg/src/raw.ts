/**
 * The typed boundary to the wasm module: what `src/web` exports through wasm-bindgen. Methods throw
 * or reject with a plain `{ code, message }`; JSON crosses as text; nothing here is public.
 */

import { TinyloomError, toError } from "./error.js";
import { fileSystem, inNode } from "./node.js";

type Bytes = Uint8Array<ArrayBuffer>;

interface Releasable {
  release(): void;
}

export interface RawRuntime extends Releasable {
  device(): GPUDevice;
  capabilities(): string;
  lost(): Promise<string>;
  counters(): string;
}

export interface RawLoader extends Releasable {
  addFile(name: string, header: Uint8Array, fileLength: number): string;
  setTensor(name: string, bytes: Uint8Array): void;
  finish(): Promise<RawModel>;
}

/** A file that is written piece by piece: its header, then each tensor's bytes in order. */
export interface RawWriter {
  saveHeader(): Uint8Array;
  tensorCount(): number;
  readTensor(index: number): Promise<Uint8Array>;
}

export interface RawModel extends Releasable, RawWriter {
  config(): string;
  parameterCount(): number;
  gpuBytes(): number;
  logits(tokens: Uint32Array): Promise<Float32Array>;
  loss(tokens: Uint32Array, targets: Uint32Array | undefined): Promise<number>;
  generate(prompt: Uint32Array, optionsJson: string): Promise<RawGeneration>;
}

export interface RawGeneration extends Releasable {
  next(): Promise<Float64Array>;
}

export type RawDataset = Releasable;

export interface RawTrainer extends Releasable, RawWriter {
  options(): string;
  step(
    tokens: Uint32Array,
    targets: Uint32Array,
    documents: Uint32Array | undefined,
  ): Promise<string>;
  stepDataset(dataset: RawDataset): Promise<string>;
  setTotalSteps(total: number): void;
  evaluationBatches(dataset: RawDataset): number;
  evaluateBatch(dataset: RawDataset, index: number): Promise<Float64Array>;
  gradientNames(): string;
  readGradient(index: number): Promise<Float32Array>;
  state(): Promise<string>;
  plan(): string;
  profile(): Promise<string>;
  activationBytes(): Float64Array;
}

export interface RawResume extends Releasable {
  addFile(name: string, header: Uint8Array, fileLength: number): string;
  setTensor(name: string, bytes: Uint8Array): void;
  finish(): Promise<RawTrainer>;
}

/** The module's exports. */
export interface RawModule {
  default(input: { module_or_path: WasmInput }): Promise<unknown>;
  RawRuntime: { create(gpu: object | undefined, optionsJson: string): Promise<RawRuntime> };
  RawLoader: new (runtime: RawRuntime, configJson: string) => RawLoader;
  RawModel: {
    create(runtime: RawRuntime, configJson: string, seed: number): Promise<RawModel>;
    countParameters(configJson: string): number;
  };
  RawDataset: new (tokens: Uint32Array, optionsJson: string) => RawDataset;
  RawTrainer: { create(model: RawModel, optionsJson: string): Promise<RawTrainer> };
  RawResume: { create(model: RawModel, stateJson: string): Promise<RawResume> };
}

/** What wasm-bindgen's initialiser takes. */
type WasmInput = URL | Response | BufferSource | WebAssembly.Module;

let loading: Promise<RawModule> | undefined;
let loaded: RawModule | undefined;

/**
 * Loads the wasm module once; later calls share the first one's. A failed load may be tried again.
 */
export function loadRaw(source: URL | Response | BufferSource | undefined): Promise<RawModule> {
  loading ??= instantiate(source).catch((error: unknown) => {
    loading = undefined;
    throw error;
  });
  return loading;
}

/** The module, if `Runtime.create` has loaded it. */
export function loadedRaw(): RawModule | undefined {
  return loaded;
}

async function instantiate(source: URL | Response | BufferSource | undefined): Promise<RawModule> {
  const path = source ?? new URL("./tinyloom_bg.wasm", import.meta.url);
  try {
    const raw: RawModule = await import("./tinyloom.js");
    await raw.default({ module_or_path: await readable(path) });
    loaded = raw;
    return raw;
  } catch (cause) {
    const from = path instanceof URL ? path.href : "the given wasm option";
    const { message } = toError(cause);
    throw new TinyloomError(
      "internal",
      `the wasm module could not be loaded from ${from} (${message}); serve tinyloom_bg.wasm ` +
        "beside the module, or pass Runtime.create({ wasm })",
      { cause },
    );
  }
}

/** Node's fetch does not read file: URLs, so its file system does. */
async function readable(path: URL | Response | BufferSource): Promise<WasmInput> {
  if (!(path instanceof URL) || path.protocol !== "file:" || !inNode()) return path;
  return (await (await fileSystem()).readFile(path)) as Bytes;
}
