/** The metadata of a file that is read, key by key: what is left at the end was not understood. */

import { TinyloomError } from "../error.js";
import { corrupt } from "../file-part.js";
import { show } from "../options.js";
import { Texts, type Value } from "./parse.js";

export class Keys {
  readonly place: string;
  readonly #all: ReadonlyMap<string, Value>;
  readonly #taken = new Set<string>();

  constructor(place: string, all: ReadonlyMap<string, Value>) {
    [this.place, this.#all] = [place, all];
  }

  #take(key: string): Value | undefined {
    this.#taken.add(key);
    return this.#all.get(key);
  }

  #wrong(key: string, value: Value, allowed: string): TinyloomError {
    return refused(`${this.place}: ${key} is ${show(value)}, and has to be ${allowed}`);
  }

  /** A number. A list, which some files have with one for each layer, has to have one number throughout. */
  number(key: string): number | undefined {
    const value = this.#take(key);
    if (value === undefined) return undefined;
    const [first] = isList(value) ? value : [value];
    if (typeof first === "number" && Number.isFinite(first)) {
      if (!isList(value) || Array.from(value).every((one) => one === first)) return shortest(first);
      throw this.#wrong(key, value, "one number for all layers");
    }
    throw this.#wrong(key, value, "a number");
  }

  /** A number without which the model is not known. */
  needed(key: string): number {
    const value = this.number(key);
    if (value !== undefined) return value;
    throw corrupt(
      `${this.place} lacks the metadata ${key}; take another file of the model, or its config.json and safetensors`,
    );
  }

  text(key: string): string | undefined {
    const value = this.#take(key);
    if (value === undefined || typeof value === "string") return value;
    throw this.#wrong(key, value, "a text");
  }

  flag(key: string): boolean | undefined {
    const value = this.#take(key);
    if (value === undefined || typeof value === "boolean") return value;
    throw this.#wrong(key, value, "true or false");
  }

  texts(key: string): readonly string[] | undefined {
    const value = this.#take(key);
    if (value === undefined) return undefined;
    if (value instanceof Texts) return value.all();
    throw this.#wrong(key, value, "a list of texts");
  }

  numbers(key: string): ArrayLike<number> | undefined {
    const value = this.#take(key);
    if (value === undefined) return undefined;
    if (isList(value)) {
      const list = value as ArrayLike<Value>;
      if (!Array.isArray(list) || list.every((one) => typeof one === "number")) {
        return list as ArrayLike<number>;
      }
    }
    throw this.#wrong(key, value, "a list of numbers");
  }

  /** Any value that asks for nothing: it is known. */
  drop(...keys: readonly string[]): void {
    for (const key of keys) this.#taken.add(key);
  }

  /** Refuses keys with a prefix that nobody took and that ask for something. */
  expectAllTaken(prefix: string): void {
    for (const [key, value] of this.#all) {
      if (!key.startsWith(prefix) || this.#taken.has(key) || !value) continue;
      throw refused(
        `${this.place} has the metadata ${key}, ${show(value)}, which tinyloom does not compute; use a model without it`,
      );
    }
  }
}

const isList = (value: Value): value is Exclude<Extract<Value, object>, Texts> =>
  typeof value === "object" && !(value instanceof Texts);

/** What a file asks for and tinyloom has not. */
export const refused = (message: string) => new TinyloomError("invalid-config", message);

/** The number of fewest digits that is the same in f32: files have 1e-5 as 9.999999747378752e-6. */
export function shortest(value: number): number {
  for (let digits = 6; digits < 10; digits++) {
    const short = Number(value.toPrecision(digits));
    if (Math.fround(short) === Math.fround(value) && Math.fround(value) === value) return short;
  }
  return value;
}
