// For Symbol.dispose in the declarations of every class, whatever `lib` a user compiles with.
/// <reference lib="esnext.disposable" preserve="true" />
import { noteLoss, requestAdapter, withAdvice } from "./adapter.js";
import { disposable } from "./dispose.js";
import { TinyloomError, toError } from "./error.js";
import { guarded, Handle, Queue } from "./handle.js";
import { prepareHost } from "./host.js";
import { runtimes } from "./internal.js";
import { morePart } from "./lazy.js";
import { check, flag, integer, invalid, object, oneOf, type Rules, show } from "./options.js";
import { loadRaw, type RawModule, type RawRuntime } from "./raw.js";
import {
  createTensor,
  type ElementType,
  type Tensor,
  type TensorData,
  type TensorOptions,
} from "./tensor.js";

/** Optional GPU features: `"auto"` uses one where the adapter has it, `false` does without. */
export interface FeatureOptions {
  /** Operations across a subgroup's lanes: faster reductions and decoding. */
  subgroups?: "auto" | false;
  /**
   * Arithmetic on 16-bit floats. Requested where the adapter has it, for shaders of your own on
   * `runtime.device`; no kernel of tinyloom uses it yet.
   */
  f16?: "auto" | false;
  /** GPU timestamps: what `trainer.profile()` measures with. */
  timestamps?: "auto" | false;
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
   * With true, creating a trainer measures a few tiles for each matrix product of its plan, for about
   * two seconds at most, and takes the fastest. With false, the default, an estimate chooses.
   * Measurements are kept by adapter and version: in IndexedDB, or in Node in the user's cache folder.
   * `trainer.plan()` shows both times. Other tiles sum in another order, so runs repeat to the bit only
   * with the same choices.
   */
  tune?: boolean;
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
  };
  /** Narrowest and widest subgroup, in lanes. */
  readonly subgroupSize: readonly [min: number, max: number];
  /** Whether the adapter computes on the CPU. */
  readonly software: boolean;
}

/** Why a device is gone for good. */
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

const FEATURES: Rules<FeatureOptions> = {
  subgroups: oneOf("auto", false),
  f16: oneOf("auto", false),
  timestamps: oneOf("auto", false),
};

const RULES: Rules<RuntimeOptions> = {
  gpu: (value) =>
    value === null || typeof (value as GPU).requestAdapter === "function"
      ? undefined
      : "a GPU object with requestAdapter, such as navigator.gpu",
  powerPreference: oneOf("high-performance", "low-power"),
  limits: (value) =>
    value === "adapter" || value === "default" || object(value) === undefined
      ? undefined
      : '"adapter" | "default" | an object of limits by name',
  features: (value) =>
    value === false || object(value) === undefined
      ? undefined
      : "false | an object such as { subgroups: false }",
  tune: flag,
  wasm: (value) =>
    value instanceof URL ||
    typeof value === "string" ||
    value instanceof Response ||
    value instanceof ArrayBuffer ||
    ArrayBuffer.isView(value) ||
    value instanceof WebAssembly.Module
      ? undefined
      : "a URL, as an object or a string, a Response, the bytes of the module, or a WebAssembly.Module",
};

/**
 * The GPU objects of devices in use. Dawn in Node takes the device down with its GPU object, and one
 * that nobody else holds may be collected while its device works.
 */
const inUse = new Set<GPU>();

/** Something a runtime owns. */
export interface Owned {
  free(): void;
}

/**
 * A GPU device and what tinyloom keeps on it. Models and tensors live on a runtime and end with it.
 *
 * @example
 * ```ts
 * const runtime = await Runtime.create();
 * console.log(runtime.capabilities.adapter.vendor);
 * runtime.destroy();
 * ```
 */
export class Runtime {
  readonly #handle: Handle<RawRuntime>;
  readonly #owned = new Set<Owned>();
  /** Under which name measurements are kept, if they are to be made, and how many numbers are. */
  #measured: string | undefined;
  #kept = 0;
  readonly #module: RawModule;
  /** What the device can do. */
  readonly capabilities: Capabilities;
  /** Settles when the device is lost, which is for good, or after `destroy()`. */
  readonly lost: Promise<LostInfo>;

  private constructor(module: RawModule, raw: RawRuntime) {
    this.#module = module;
    this.#handle = new Handle("Runtime", raw, new Queue());
    this.capabilities = JSON.parse(raw.capabilities()) as Capabilities;
    this.lost = raw.lost().then((json) => JSON.parse(json) as LostInfo);
    this.lost.then(noteLoss, () => undefined);
    runtimes.set(this, {
      queue: new Queue(),
      module,
      own: (one) => this.#owned.add(one),
      disown: (one) => this.#owned.delete(one),
      now: (operation) => this.#handle.now(operation),
      call: (operation) => this.#call(operation),
      remember: () => this.#remember(),
      counters: () => this.#handle.now((own) => JSON.parse(own.counters()) as Counters),
    });
  }

  /**
   * Opens a device, with the limits and features of the options. The first call loads the wasm
   * module.
   *
   * @throws {@link TinyloomError} `webgpu-unavailable` without a GPU object, `adapter-unavailable`
   * without an adapter, `limit-exceeded` when a cap is below what every kernel needs,
   * `module-unavailable` or `content-security` where the wasm module cannot be had, `invalid-options`.
   */
  static async create(options: RuntimeOptions = {}): Promise<Runtime> {
    const { gpu: given, wasm, tune = false, ...rest } = check("Runtime.create", options, RULES);
    const raw = { limits: limits(rest.limits), features: features(rest.features) };
    const gpu = given === undefined ? (globalThis.navigator as Navigator | undefined)?.gpu : given;
    if (typeof gpu?.requestAdapter !== "function") {
      throw new TinyloomError(
        "webgpu-unavailable",
        "there is no navigator.gpu here; use a browser with WebGPU on a secure page (https or " +
          'localhost), or in Node pass gpu: create([]) from npm "webgpu"',
      );
    }
    try {
      // The browser opens its driver while the module loads. If both fail, the module's error is reported.
      const asked = requestAdapter(gpu, rest.powerPreference);
      asked.catch(() => undefined);
      const module = await loadRaw(wasm);
      const adapter = await asked;
      await prepareHost(gpu);
      const created = () => module.RawRuntime.create(gpu, adapter, JSON.stringify(raw));
      const runtime = new Runtime(module, await guarded(created));
      inUse.add(gpu);
      try {
        if (tune) await runtime.#tune();
      } catch (error) {
        runtime.destroy(); // nobody else has it
        throw error;
      }
      return runtime;
    } catch (error) {
      throw withAdvice(toError(error));
    }
  }

  /** The raw device, for a page's own work beside tinyloom's. Its buffers are yours to free. */
  get device(): GPUDevice {
    return this.#handle.now((raw) => raw.device());
  }

  /**
   * A tensor on the GPU, for the operations of `tinyloom/ops` and for work of your own.
   *
   * @param data - the elements in row-major order, as numbers or, for `"f16"`, also as raw bits in a
   * `Uint16Array`; null or undefined for zeros. Numbers are rounded to f32, and from there for
   * `"f16"` to the nearest half, ties to even.
   * @param shape - elements along each axis: 1 to 8 whole numbers of at least 1.
   * @throws {@link TinyloomError} `invalid-options`, also for numbers beyond ±65,504 in `"f16"`;
   * `limit-exceeded` above the device's `maxStorageBufferBindingSize`; `out-of-memory`, `freed`.
   *
   * @example
   * ```ts
   * const query = runtime.tensor(numbers, [1, 8, 128, 64], { element: "f16" });
   * ```
   */
  tensor(
    data: TensorData | null | undefined,
    shape: readonly number[],
    options: TensorOptions = {},
  ): Tensor {
    const allocate = (elements: number, element: ElementType) =>
      this.#handle.now((raw) => raw.tensor(elements, element));
    return createTensor(this, allocate, data, shape, options);
  }

  /**
   * Frees every model, trainer and tensor and destroys the device. Calls on them reject with code "freed"
   * from then on; `lost` settles. A second call does nothing.
   */
  destroy(): void {
    for (const one of [...this.#owned]) one.free();
    this.#handle.free();
  }

  /** Destroys the runtime, as the end of a `using` block does. */
  declare readonly [Symbol.dispose]: () => void;
  /** Destroys the runtime and waits until the device is gone: for `await using`. */
  declare readonly [Symbol.asyncDispose]: () => Promise<void>;

  static {
    disposable(Runtime.prototype, {
      end: (runtime) => runtime.destroy(),
      settled: async (runtime) => void (await runtime.lost),
    });
  }

  /** Has products measured that were not measured on this adapter before. */
  async #tune(): Promise<void> {
    const { vendor, architecture, device, description } = this.capabilities.adapter;
    const adapter = [vendor, architecture, device, description].join(" ");
    // Other limits, other candidates.
    const { limits } = this.capabilities;
    const within = [
      limits.maxComputeWorkgroupStorageSize,
      limits.maxComputeInvocationsPerWorkgroup,
      limits.maxStorageBufferBindingSize,
    ].join(" ");
    const { RawRuntime } = this.#module;
    const format = RawRuntime.tunedFormat();
    const by = `${RawRuntime.version()} in format ${format.join(" ")}`;
    this.#measured = `measured by ${by} within ${within} on ${adapter}`;
    const known = numbers(await (await morePart()).remembered(this.#measured), format[0] as number);
    this.#handle.now((raw) => raw.tune(known));
    this.#kept = known.length;
  }

  /** Keeps what has been measured since. */
  async #remember(): Promise<void> {
    if (this.#measured === undefined) return;
    const measured = this.#handle.now((raw) => raw.tuned());
    if (measured.length === this.#kept) return; // products are added, never changed
    const [all, ofShape] = this.#module.RawRuntime.tunedFormat() as unknown as [number, number];
    const products = new Map<string, string>();
    for (let at = this.#kept; at < measured.length; at += all) {
      const product = [...measured.subarray(at, at + all)];
      products.set(product.slice(0, ofShape).join(" "), JSON.stringify(product));
    }
    this.#kept = measured.length;
    await (await morePart()).remember(this.#measured, products);
  }

  async #call<T>(operation: (raw: RawRuntime, module: RawModule) => Promise<T> | T): Promise<T> {
    try {
      const result = await guarded(() => operation(this.#handle.raw, this.#module));
      void this.#handle.raw; // a runtime destroyed meanwhile: code "freed"
      return result;
    } catch (error) {
      void this.#handle.raw;
      throw toError(error);
    }
  }
}

/** The numbers of the kept texts that are lists of so many. */
function numbers(texts: readonly string[], count: number): Float64Array {
  const products = texts.flatMap((text) => {
    try {
      const list: unknown = JSON.parse(text);
      const whole = Array.isArray(list) && list.length === count && list.every(Number.isFinite);
      return whole ? (list as number[]) : [];
    } catch {
      return []; // damaged
    }
  });
  return Float64Array.from(products);
}

function features(given: FeatureOptions | false | undefined) {
  const chosen = given === false ? {} : check("Runtime.create: features", given, FEATURES);
  const on = (value: "auto" | false | undefined) => given !== false && value !== false;
  return {
    subgroups: on(chosen.subgroups),
    f16: on(chosen.f16),
    timestamps: on(chosen.timestamps),
  };
}

function limits(given: RuntimeOptions["limits"]): RuntimeOptions["limits"] {
  if (typeof given !== "object") return given ?? "adapter";
  for (const [name, value] of Object.entries(given)) {
    if (!/^(max|min)[A-Z]\w*$/.test(name)) {
      throw invalid(`Runtime.create: limits has no ${show(name)}; use WebGPU's names of limits`);
    }
    const allowed = integer(1)(value);
    if (allowed) throw invalid(`Runtime.create: limits.${name} is ${show(value)}; give ${allowed}`);
  }
  return given;
}
