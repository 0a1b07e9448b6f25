/** Measured products, kept from one session to the next. */

import type { RawHandle } from "./raw-handle.js";
import type { RawModule, RawRuntime } from "./raw-types.js";
import { remember, remembered } from "./remembered.js";
import type { Capabilities } from "./runtime-types.js";

/** The measurements of one runtime. */
export class Tuning {
  readonly #module: RawModule;
  readonly #handle: RawHandle<RawRuntime>;
  /** The name under which they are kept. */
  readonly #name: string;
  /** How many of the module's numbers are kept. */
  #kept: number;

  private constructor(
    module: RawModule,
    handle: RawHandle<RawRuntime>,
    name: string,
    known: Float64Array,
  ) {
    this.#module = module;
    this.#handle = handle;
    this.#name = name;
    this.#kept = known.length;
    handle.callSync((raw) => raw.tune(known));
  }

  /** Has products measured that were not measured on this adapter before. */
  static async begin(
    module: RawModule,
    handle: RawHandle<RawRuntime>,
    { adapter, limits }: Capabilities,
  ): Promise<Tuning> {
    const { vendor, architecture, device, description } = adapter;
    const on = [vendor, architecture, device, description].join(" ");
    // Other limits, other candidates.
    const within = [
      limits.maxComputeWorkgroupStorageSize,
      limits.maxComputeInvocationsPerWorkgroup,
      limits.maxStorageBufferBindingSize,
    ].join(" ");
    const { RawRuntime } = module;
    const format = RawRuntime.tunedFormat();
    const by = `${RawRuntime.version()} in format ${format.join(" ")}`;
    const name = `measured by ${by} within ${within} on ${on}`;
    const known = numbers(await remembered(name), format[0] as number);
    return new Tuning(module, handle, name, known);
  }

  /** Keeps what has been measured since. */
  async remember(): Promise<void> {
    const measured = this.#handle.callSync((raw) => raw.tuned());
    if (measured.length === this.#kept) return; // products are added, never changed
    const [all, ofShape] = this.#module.RawRuntime.tunedFormat() as unknown as [number, number];
    const products = new Map<string, string>();
    for (let at = this.#kept; at < measured.length; at += all) {
      const product = [...measured.subarray(at, at + all)];
      products.set(product.slice(0, ofShape).join(" "), JSON.stringify(product));
    }
    this.#kept = measured.length;
    await remember(this.#name, products);
  }
}

/** The numbers of the kept texts that are lists of `count` numbers. */
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
