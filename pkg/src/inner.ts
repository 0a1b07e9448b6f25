/** A class's inner sides: what the package knows of an object, and its users cannot reach. */

import { TinyloomError } from "./error.js";

/** What constructors are called with here. */
export const MADE = Symbol();

/**
 * Refuses a constructor that somebody else calls.
 *
 * @param how - the call that gives an object of the class.
 */
export function expectMade(made: unknown, name: string, how = `await ${name}.create(…)`): void {
  if (made === MADE) return;
  throw new TinyloomError("invalid-options", `new ${name}() makes no ${name}; call ${how}`);
}

/** The inner sides of a class's objects. They are keyed by `object`, so that this knows no class. */
export class Inner<I> {
  readonly #inner = new WeakMap<object, I>();

  /** Keeps the inner side of an object that is being made. */
  set(object: object, inner: I): I {
    this.#inner.set(object, inner);
    return inner;
  }

  /** The inner side of an object, if it has one. */
  find(object: unknown): I | undefined {
    return this.#inner.get(object as object);
  }

  /** The inner side of an object that has one. */
  of(object: object): I {
    const inner = this.#inner.get(object);
    if (inner) return inner;
    throw new TinyloomError(
      "invalid-options",
      "this object was not made by tinyloom, or by another copy of it; use what its functions give",
    );
  }
}
