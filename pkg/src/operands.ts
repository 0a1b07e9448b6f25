/** One operation on its way to the module, which judges all values: tensors of one runtime, and fields. */

import { Fields, ROLE } from "./fields.js";
import type { ElementType } from "./formats.js";
import type { InnerRuntime } from "./inner-runtime.js";
import { tensors } from "./internal.js";
import { check, invalid, isA, type Rules, show } from "./options.js";
import { createTensor, Tensor } from "./tensor.js";

/** What a tensor that is to be made is like. */
export interface Wanted {
  readonly shape: readonly number[];
  readonly element: ElementType;
}

type Role = keyof typeof ROLE;

/** What an operation reads and writes. */
export class Operands {
  readonly fields = new Fields();
  readonly #where: string;
  readonly #given = new Map<string, Tensor>();

  /**
   * @param where - the call, for messages.
   * @param inputs - what is read, by name.
   */
  constructor(where: string, inputs: { readonly [name in Role]?: unknown }) {
    this.#where = where;
    for (const name of Object.keys(inputs) as Role[]) this.#add(where, name, inputs[name]);
  }

  /** Adds the tensors to write into, if the caller has any. */
  into<T extends object>(given: unknown, rules: Rules<T>): void {
    const where = `${this.#where}: into`;
    const into = check<T>(where, given, rules);
    for (const [name, one] of Object.entries(into)) this.#add(where, name as Role, one);
  }

  /**
   * Runs the operation in its turn among those on the runtime's tensors. It is judged at once.
   *
   * @param dense - the data of a dense mask, which is copied at once.
   * @param written - what is written, in the module's order; made where it was not given.
   */
  async run<N extends Role>(
    operation: number,
    written: { readonly [name in N]: Wanted },
    dense?: Uint8Array,
  ): Promise<Record<N, Tensor>> {
    const runtime = this.#runtime;
    const { queue, callSync, callUnrepeated } = runtime;
    const judged = callSync((raw) => raw.operation(operation, this.fields.numbers, dense));
    const made: Tensor[] = [];
    let begun = false;
    try {
      const results = Object.keys(written).map((name) => {
        const given = this.#given.get(name);
        if (given) return [name, given] as const;
        const { shape, element } = written[name as N];
        const tensor = createTensor(runtime, null, shape, { element });
        made.push(tensor);
        return [name, tensor] as const;
      });
      const all = [...this.#given.values(), ...made].map((one) => tensors.of(one));
      const ids = Uint32Array.from(made, (one) => tensors.of(one).id());
      await queue.run(() => {
        for (const { allocation } of all) void allocation.handle.raw;
        return callUnrepeated(async () => {
          begun = true;
          const done = judged.run(ids);
          done.catch(() => undefined);
          // A tensor without memory is why the call fails.
          for (const { allocation } of all) await allocation.ready;
          await done;
        });
      });
      return Object.fromEntries(results) as Record<N, Tensor>;
    } catch (error) {
      if (!begun) judged.free();
      for (const tensor of made) tensor.free();
      throw error;
    }
  }

  get #runtime(): InnerRuntime {
    const [first] = this.#given.values() as Iterable<Tensor> as [Tensor];
    return tensors.of(first).allocation.runtime;
  }

  #add(where: string, name: Role, one: unknown): void {
    if (!isA(one, Tensor)) {
      throw invalid(
        `${where}: ${name} is ${show(one)}; give a tensor, as runtime.tensor() makes them`,
      );
    }
    const { allocation, id } = tensors.of(one);
    this.#given.set(name, one);
    if (allocation.runtime !== this.#runtime) {
      throw invalid(`${this.#where}: ${name} is of another runtime; give tensors of one`);
    }
    const half = one.element === "f16" ? 1 : 0;
    this.fields.add(ROLE[name], [id(), half, one.offset, ...one.shape, ...one.strides]);
  }
}
