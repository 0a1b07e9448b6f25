/** The tensors of one operation: checked, in one runtime, none of the written ones shared. */

import { runtimes, tensors } from "./internal.js";
import { invalid, show } from "./options.js";
import { expectRoom, type RawRuntime } from "./raw.js";
import type { Runtime } from "./runtime.js";
import { type ElementType, Tensor } from "./tensor.js";

/** Where a tensor of four axes lies, as it crosses to the module: in elements. */
export interface RawView {
  readonly id: number;
  readonly offset: number;
  readonly strides: readonly number[];
}

/** What a tensor must be. */
export interface Wanted {
  readonly shape: readonly number[];
  readonly element: ElementType;
}

/** Refuses what is no tensor, for callers without types. */
export function expectTensor(where: string, name: string, one: unknown): asserts one is Tensor {
  if (one instanceof Tensor) return;
  throw invalid(`${where}: ${name} is ${show(one)}; give a tensor, as runtime.tensor() makes them`);
}

/** Holds a tensor to a shape and an element. */
export function expectLike(
  where: string,
  name: string,
  one: unknown,
  { shape, element }: Wanted,
): asserts one is Tensor {
  expectTensor(where, name, one);
  if (`${one.shape}` === `${shape}` && one.element === element) return;
  throw invalid(
    `${where}: ${name} has the shape [${one.shape}] in ${one.element}; give [${shape}] in ${element}`,
  );
}

/** What an operation reads and writes. */
export class Operands {
  readonly #where: string;
  readonly #runtime: Runtime;
  readonly #all = new Map<string, Tensor>();
  readonly #made: Tensor[] = [];

  /** @param inputs - what is read, by name; they may share buffers. */
  constructor(where: string, inputs: { readonly [name: string]: Tensor }) {
    this.#where = where;
    const [first] = Object.values(inputs) as [Tensor];
    this.#runtime = tensors.of(first).allocation.runtime;
    for (const [name, tensor] of Object.entries(inputs)) this.#add(name, tensor);
  }

  /**
   * A tensor to write: the caller's, or a new one. WebGPU lets no dispatch write to a buffer that it
   * also reads, so the caller's has a buffer to itself.
   */
  output(name: string, given: unknown, wanted: Wanted): Tensor {
    if (given === undefined) {
      const made = this.#runtime.tensor(null, wanted.shape, { element: wanted.element });
      this.#made.push(made);
      this.#all.set(name, made);
      return made;
    }
    const where = `${this.#where}: into`;
    expectLike(where, name, given, wanted);
    for (const [other, tensor] of this.#all) {
      if (tensors.of(tensor).allocation === tensors.of(given).allocation) {
        throw invalid(
          `${where}: ${name} shares its buffer with ${other}; give one with a buffer of its own`,
        );
      }
    }
    this.#add(name, given);
    return given;
  }

  /** Runs `work`; if it fails, the tensors made for it are freed again. */
  async guard<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      for (const tensor of this.#made) tensor.free();
      throw error;
    }
  }

  /**
   * A call in its turn among the operations on the runtime's tensors.
   *
   * @param maskBytes - bytes of the call's dense mask, if it has one.
   */
  run(call: (raw: RawRuntime) => Promise<void>, maskBytes = 0): Promise<void> {
    const { queue, call: onRuntime } = runtimes.of(this.#runtime);
    return queue.run(() => {
      for (const tensor of this.#all.values()) void tensors.of(tensor).allocation.handle.raw;
      return onRuntime(async (raw, module) => {
        // Its bytes, its words, and these behind the mask's intervals.
        expectRoom(module, "a dense mask", 3 * maskBytes);
        const done = call(raw);
        done.catch(() => undefined);
        // A tensor without memory is why the call fails.
        for (const tensor of this.#all.values()) await tensors.of(tensor).allocation.ready;
        await done;
      });
    });
  }

  /** The views of tensors of four axes, by name. */
  views<N extends string>(...names: N[]): Record<N, RawView> {
    const entries = names.map((name) => [name, this.#view(name, this.#all.get(name) as Tensor)]);
    return Object.fromEntries(entries) as Record<N, RawView>;
  }

  /** The buffer of a tensor that has it from its beginning on, without gaps. */
  id(name: string): number {
    const tensor = this.#all.get(name) as Tensor;
    if (tensor.offset === 0 && tensors.of(tensor).contiguous) {
      return tensors.of(tensor).id();
    }
    throw invalid(
      `${this.#where}: ${name} is a part of its buffer (offset ${tensor.offset}, strides ` +
        `[${tensor.strides}]); give a tensor that has it from the beginning and in order`,
    );
  }

  #add(name: string, tensor: Tensor): void {
    if (tensors.of(tensor).allocation.runtime !== this.#runtime) {
      throw invalid(`${this.#where}: ${name} is of another runtime; give tensors of one`);
    }
    void tensors.of(tensor).allocation.handle.raw;
    this.#all.set(name, tensor);
  }

  /** The kernels read vectors of four elements. */
  #view(name: string, tensor: Tensor): RawView {
    const { shape, offset } = tensor;
    // The stride of an axis of one element is never used.
    const strides = tensor.strides.map((stride, axis) => (shape[axis] === 1 ? 0 : stride));
    const [rows, last] = [strides.slice(0, 3), strides[3]];
    if (last !== 1 || [offset, ...rows].some((elements) => elements % 4 !== 0)) {
      throw invalid(
        `${this.#where}: ${name} has offset ${offset} and strides [${tensor.strides}]; the last axis ` +
          "must lie without gaps, offset and other strides be multiples of 4",
      );
    }
    return { id: tensors.of(tensor).id(), offset, strides: rows };
  }
}
