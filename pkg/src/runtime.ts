// For Symbol.dispose in the declarations of every class, whatever `lib` a user compiles with.
/// <reference lib="esnext.disposable" preserve="true" />

import { CallQueue } from "./call-queue.js";
import { disposable } from "./dispose.js";
import { TinyloomError, toError } from "./error.js";
import { advised, noteLoss, requestAdapter } from "./gpu-adapter.js";
import { expectMade, MADE } from "./inner.js";
import { runtimes } from "./internal.js";
import { deferredPart, told } from "./lazy.js";
import {
  check,
  flag,
  inspect,
  integer,
  invalid,
  isA,
  object,
  oneOf,
  type Rules,
  show,
} from "./options.js";
import { endWith, RawHandle } from "./raw-handle.js";
import type { RawModule, RawRuntime } from "./raw-types.js";
import type { Reopening } from "./recovery/device-recovery.js";
import type { Recovery } from "./recovery/index.js";
import type {
  Capabilities,
  Counters,
  FeatureOptions,
  LostInfo,
  Owned,
  RuntimeOptions,
} from "./runtime-types.js";
import { createTensor, type Tensor, type TensorData, type TensorOptions } from "./tensor.js";
import type { Tuning } from "./tuned-products.js";
import { loadRaw } from "./wasm-instance.js";

const FEATURES: Rules<FeatureOptions> = {
  subgroups: oneOf("auto", false),
  f16: oneOf("auto", false),
  timestamps: oneOf("auto", false),
  subgroupMatrix: oneOf("auto", false),
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
  memoryBudget: integer(1),
  tune: flag,
  recover: (value) =>
    typeof value === "boolean" || object(value) === undefined
      ? undefined
      : "true | false | an object such as { attempts: 5 }",
  wasm: (value) =>
    value instanceof URL ||
    typeof value === "string" ||
    value instanceof Response ||
    value instanceof ArrayBuffer ||
    ArrayBuffer.isView(value) ||
    value instanceof WebAssembly.Module
      ? undefined
      : "a URL or its text, a Response, bytes, or a WebAssembly.Module",
};

/**
 * The GPU objects of devices in use. Dawn in Node takes the device down with its GPU object, and one
 * that nobody else holds may be collected while its device works.
 */
const inUse = new Set<GPU>();

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
  readonly #handle: RawHandle<RawRuntime>;
  readonly #owned = new Set<Owned>();
  /** Measured products, if they are to be measured. */
  #tuning: Tuning | undefined;
  readonly #module: RawModule;
  /** The device that serves. */
  #device!: GPUDevice;
  /** What the device can do. After a lost device these are the next one's. */
  readonly capabilities!: Capabilities;
  /**
   * Settles when the device is lost for good: when no other could be opened, after `destroy()`, or with
   * `recover: false`.
   */
  readonly lost: Promise<LostInfo>;

  private constructor(
    made: typeof MADE,
    module: RawModule,
    raw: RawRuntime,
    recovering?: (reopening: Reopening) => Recovery,
  ) {
    expectMade(made, "Runtime");
    this.#module = module;
    this.#handle = new RawHandle("Runtime", raw, new CallQueue(), module);
    const opened = (by: RawRuntime) => {
      Object.assign(this, { capabilities: JSON.parse(by.capabilities()) });
      this.#device = by.device();
    };
    opened(raw);
    const recovery = recovering?.({ module, handle: this.#handle, owned: this.#owned, opened });
    this.#handle.restorer = recovery;
    /** A call whose result is of no use once the runtime was destroyed: code "freed" then. */
    const whileOpen =
      <T>(operation: (by: RawRuntime, module: RawModule) => Promise<T> | T) =>
      async (by: RawRuntime) => {
        const result = await operation(by, module);
        void this.#handle.raw;
        return result;
      };
    this.lost =
      recovery?.lost ??
      module
        .guarded(() => raw.lost())
        .then(JSON.parse, ({ message }): LostInfo => ({ reason: "unknown", message }));
    this.lost.then(noteLoss);
    runtimes.set(this, {
      queue: new CallQueue(),
      module,
      own: (one) => this.#owned.add(one),
      disown: (one) => this.#owned.delete(one),
      callSync: (operation) => this.#handle.callSync(operation),
      callUnrepeated: (operation) => this.#handle.runUnrepeated(whileOpen(operation)),
      call: (operation, signal) => this.#handle.runOutOfTurn(whileOpen(operation), signal),
      recovery,
      remember: async () => this.#tuning?.remember(),
      counters: () => this.#handle.callSync((own) => JSON.parse(own.counters()) as Counters),
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
    const chosen = await told(() => check("Runtime.create", options, RULES));
    const { gpu: given, wasm, tune = false, recover, powerPreference, ...rest } = chosen;
    const capped = inspect("Runtime.create", () => limits(rest.limits));
    const raw = { ...rest, limits: capped, features: features(rest.features) };
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
      const asking = () => requestAdapter(gpu, powerPreference);
      const asked = asking();
      asked.catch(() => undefined);
      const part = recover === false ? undefined : deferredPart();
      part?.catch(() => undefined);
      const module = await loadRaw(wasm);
      const open = async (adapter: GPUAdapter) => {
        // A page and its workers lack nothing.
        if (!("Window" in globalThis || "importScripts" in globalThis)) {
          await (await deferredPart()).prepareHost(gpu);
        }
        return module.guarded(() => module.RawRuntime.create(gpu, adapter, JSON.stringify(raw)));
      };
      // A service worker loads no part: there a runtime that was not asked to recover does without.
      const loaded = await (recover === undefined ? part?.catch(() => undefined) : part);
      const recovering = loaded?.recovering(recover, { tune, asking, open });
      const runtime = new Runtime(MADE, module, await open(await asked), recovering);
      inUse.add(gpu);
      try {
        if (tune) {
          const { Tuning } = await deferredPart();
          runtime.#tuning = await Tuning.begin(module, runtime.#handle, runtime.capabilities);
        }
      } catch (error) {
        runtime.destroy(); // nobody else has it
        throw error;
      }
      return runtime;
    } catch (thrown) {
      const error = toError(thrown);
      throw error.code === "adapter-unavailable" ? advised(error) : error;
    }
  }

  /** The raw device, for a page's own work beside tinyloom's. Its buffers are yours to free. */
  get device(): GPUDevice {
    return this.#handle.callSync((raw) => raw.device());
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
    return createTensor(runtimes.of(this), data, shape, options);
  }

  /**
   * Loses the device as a crash of the GPU would: for pages that show how they go on, and for tests.
   *
   * @throws {@link TinyloomError} `freed`.
   */
  simulateLoss(): void {
    this.device.destroy();
  }

  /**
   * Frees every model, trainer and tensor and destroys the device. Calls on them reject with code "freed"
   * from then on; `lost` settles. A second call does nothing.
   */
  destroy(): void {
    endWith("freed when its Runtime was destroyed", this.#owned);
    endWith("destroyed", [this.#handle]);
    // A module that panicked no longer can.
    if (this.#module.panic) this.#device.destroy();
    runtimes.of(this).recovery?.stop();
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
}

function features(given: FeatureOptions | false | undefined) {
  const chosen = given === false ? {} : check("Runtime.create: features", given, FEATURES);
  const on = (value: "auto" | false | undefined) => given !== false && value !== false;
  return {
    subgroups: on(chosen.subgroups),
    f16: on(chosen.f16),
    timestamps: on(chosen.timestamps),
    subgroupMatrix: on(chosen.subgroupMatrix),
  };
}

function limits(given: RuntimeOptions["limits"]): RuntimeOptions["limits"] {
  if (typeof given !== "object") return given ?? "adapter";
  const copy = { ...given };
  expectLimits("Runtime.create", copy);
  return copy;
}

/** Refuses limits that no device has. */
export function expectLimits(where: string, given: object): void {
  for (const [name, value] of Object.entries(given)) {
    if (!/^(max|min)[A-Z]\w*$/.test(name)) {
      throw invalid(`${where}: limits has no ${show(name)}; use WebGPU's names of limits`);
    }
    const allowed = integer(1)(value);
    if (allowed) throw invalid(`${where}: limits.${name} is ${show(value)}; give ${allowed}`);
  }
}

/** Refuses anything but a runtime, for callers without types. @internal */
export function expectRuntime(
  where: string,
  runtime: unknown,
  or = "",
): asserts runtime is Runtime {
  if (!isA(runtime, Runtime)) {
    throw invalid(
      `${where} takes a Runtime first${or}, not ${show(runtime)}; await Runtime.create()`,
    );
  }
}
