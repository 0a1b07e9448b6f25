/** What a runtime takes and tells. */

import type { RecoverOptions } from "./recovery/types.js";

/** Optional GPU features: `"auto"` uses one where the adapter has it, `false` does without. */
export interface FeatureOptions {
  /** Operations across a subgroup's lanes: faster reductions and decoding. */
  subgroups?: "auto" | false;
  /**
   * Arithmetic on 16-bit floats. Requested where the adapter has it, for shaders of your own on
   * `runtime.device`. Of tinyloom's kernels those with subgroup matrices use it.
   */
  f16?: "auto" | false;
  /** GPU timestamps: what `trainer.profile()` measures with. */
  timestamps?: "auto" | false;
  /**
   * Products of small matrices by a subgroup, an experiment of Chromium behind `--enable-unsafe-webgpu`.
   * Needs `subgroups`; tinyloom's products on them also need `f16`.
   */
  subgroupMatrix?: "auto" | false;
}

/** Options of {@link Runtime.create}. */
export interface RuntimeOptions {
  /** A WebGPU entry point; default `navigator.gpu`. In Node: `create([])` from npm `webgpu`. */
  gpu?: GPU | null;
  /** Which adapter to prefer; default `"high-performance"`. */
  powerPreference?: "high-performance" | "low-power";
  /**
   * `"adapter"` (default) raises the limits that tinyloom reads to what the adapter has; `"default"`
   * stays on WebGPU's guaranteed floor; an object caps limits by their WebGPU names, such as
   * `{ maxComputeWorkgroupStorageSize: 16384 }` (bytes).
   */
  limits?: "adapter" | "default" | { readonly [name: string]: number };
  /** Optional features; default all `"auto"`. `false`: none. */
  features?: FeatureOptions | false;
  /**
   * The most bytes of GPU memory that models, trainers, tensors and calls of this runtime may take together.
   * What would pass it is refused with code "out-of-memory" before anything is allocated, and of a checkpoint
   * before its weights are asked for. Default: 4 GiB where the adapter computes on the CPU; elsewhere no
   * bound, since WebGPU does not tell a GPU's memory.
   */
  memoryBudget?: number;
  /**
   * With true, creating a trainer measures a few tiles for each matrix product of its plan, for about
   * two seconds at most, and takes the fastest. With false, the default, an estimate chooses.
   * Measurements are kept by adapter and version: in IndexedDB, or in Node in the user's cache folder.
   * `trainer.plan()` shows both times. Other tiles sum in another order, so runs repeat to the bit only
   * with the same choices.
   */
  tune?: boolean;
  /**
   * What happens when the GPU device is lost. With true, the default, another one is opened, and models,
   * trainers and running calls go on there: see {@link RecoverOptions}. With false everything on the device
   * is gone, and calls reject with code "device-lost".
   */
  recover?: boolean | RecoverOptions;
  /**
   * The wasm module: its address, such as a loader of your bundler gives (a string is read relative to
   * the page), its bytes, or the compiled module. Default: `tinyloom_bg.wasm` beside this module, and
   * where that does not answer, the same bytes imported as JavaScript. Only the first call's counts.
   */
  wasm?: URL | string | Response | BufferSource | WebAssembly.Module;
}

/** What the device can do, as plain data. */
export interface Capabilities {
  /** The adapter's own description; fields it keeps to itself are empty. */
  readonly adapter: {
    readonly vendor: string;
    readonly architecture: string;
    readonly device: string;
    readonly description: string;
  };
  /** The device's limits by their WebGPU names. */
  readonly limits: { readonly [name: string]: number };
  /** The optional features in use. */
  readonly features: {
    readonly subgroups: boolean;
    /** WGSL's `subgroup_id` and `num_subgroups`, a language feature of its own. */
    readonly subgroupId: boolean;
    readonly f16: boolean;
    readonly timestamps: boolean;
    readonly subgroupMatrix: boolean;
  };
  /** Narrowest and widest subgroup, in lanes. */
  readonly subgroupSize: readonly [min: number, max: number];
  /** Products of matrices that a subgroup computes: M×K by K×N elements. Absent without `subgroupMatrix`. */
  readonly subgroupMatrixConfigs?: readonly {
    readonly componentType: string;
    readonly resultComponentType: string;
    readonly M: number;
    readonly N: number;
    readonly K: number;
  }[];
  /** Whether the adapter computes on the CPU. */
  readonly software: boolean;
  /** The `memoryBudget` that the runtime was given. */
  readonly memoryBudget?: number;
}

/** Why a device is gone. */
export interface LostInfo {
  /** `"destroyed"` after {@link Runtime.destroy}; else the browser gives no reason. */
  readonly reason: "destroyed" | "unknown";
  readonly message: string;
}

/** Totals since the runtime began, `gpuBytes` in use now, and the module's memory; for the project's tests. */
export interface Counters {
  readonly buffers: number;
  readonly bindGroups: number;
  readonly pipelines: number;
  readonly submits: number;
  readonly dispatches: number;
  readonly gpuBytes: number;
  /** Bytes of the module's memory, which never shrinks. */
  readonly wasmBytes: number;
}

/** Something a runtime owns. */
export interface Owned {
  free(): void;
  /** Told of a lost device, where it does not come back with another one. */
  lost?(): void;
}
