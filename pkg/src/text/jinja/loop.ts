/** `loop`, which a template has within `{% for %}`. */

import { Callable, defined, equal, fault, type Value } from "./values.js";

export class Loop {
  readonly value: Callable;
  readonly #items: readonly Value[];
  readonly #depth: number;
  #index = 0;
  #last: readonly Value[] | undefined;

  /** @param again - renders the loop's body for other items, where the loop is recursive. */
  constructor(
    items: readonly Value[],
    depth: number,
    again: ((items: Value) => Value) | undefined,
  ) {
    this.#items = items;
    this.#depth = depth;
    const call = (args: readonly Value[]) => {
      const [more] = args;
      if (!again || more === undefined) throw fault("it calls a loop that is not recursive");
      return again(more);
    };
    this.value = new Callable("loop", call, (name) => this.#field(name));
  }

  next(): void {
    this.#index += 1;
  }

  #field(name: string): Value | undefined {
    const [at, length] = [this.#index, this.#items.length];
    switch (name) {
      case "index":
        return at + 1;
      case "index0":
        return at;
      case "revindex":
        return length - at;
      case "revindex0":
        return length - at - 1;
      case "first":
        return at === 0;
      case "last":
        return at === length - 1;
      case "length":
        return length;
      case "depth":
        return this.#depth + 1;
      case "depth0":
        return this.#depth;
      case "previtem":
        return defined(this.#items[at - 1], "there is no previous item");
      case "nextitem":
        return defined(this.#items[at + 1], "there is no next item");
      case "cycle":
        return new Callable("cycle", (args) => {
          if (args.length === 0) throw fault("it calls loop.cycle() without values");
          return args[at % args.length] as Value;
        });
      case "changed":
        return new Callable("changed", (args) => {
          const last = this.#last;
          this.#last = args;
          return (
            !last ||
            last.length !== args.length ||
            !args.every((one, i) => equal(one, last[i] as Value))
          );
        });
      default:
        return undefined;
    }
  }
}
