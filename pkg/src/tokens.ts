/** Token ids as users may give them, and as the GPU takes them. */

import { TinyloomError } from "./error.js";
import { hints } from "./hints.js";
import { inspect, show } from "./options.js";
import type { ResolvedConfig } from "./resolved-config.js";

/**
 * Token ids: whole numbers of at least 0. Every call copies them at once, so the array may be changed
 * as soon as the call has returned.
 */
export type TokenIds = Uint32Array | Uint16Array | Uint8Array | readonly number[];

/** A target that the loss leaves out. */
export const IGNORE_INDEX = 0xffff_ffff;

/**
 * A copy of the ids, or code "invalid-tokens".
 *
 * @param name - the argument's name, for the message.
 */
export function toTokens(name: string, ids: unknown): Uint32Array {
  const tokens = asTokens(name, ids);
  // `slice` takes Chromium four times as long.
  return tokens === ids ? new Uint32Array(tokens) : tokens;
}

/** The ids to be read before the caller can change them: a `Uint32Array` is not copied. */
export function asTokens(name: string, ids: unknown): Uint32Array {
  return inspect(name, () => read(name, ids), "invalid-tokens");
}

function read(name: string, ids: unknown): Uint32Array {
  // A proxy of an array is no view: its elements cannot be read.
  if (
    ArrayBuffer.isView(ids) &&
    (ids instanceof Uint32Array || ids instanceof Uint16Array || ids instanceof Uint8Array)
  ) {
    if (ids.length > 0 && Object.getPrototypeOf(ids) === Uint32Array.prototype) {
      return ids as Uint32Array;
    }
    try {
      return new Uint32Array(ids);
    } catch (cause) {
      const message = `${name} is empty: its buffer was transferred; copy it before, or make it again`;
      throw new TinyloomError("invalid-tokens", message, { cause });
    }
  }
  if (!Array.isArray(ids)) {
    throw wrong(name, ids, ids, "give a Uint32Array or an array of token ids");
  }
  const result = new Uint32Array(ids.length);
  for (const [index, id] of ids.entries()) {
    if (!Number.isInteger(id) || id < 0 || id > IGNORE_INDEX) {
      const ignored = name === "targets" ? ", and a target to ignore is 0xffffffff" : "";
      const allowed = `a token id is a whole number from 0 to vocab_size - 1${ignored}`;
      throw wrong(`${name}[${index}]`, id, ids, allowed);
    }
    result[index] = id;
  }
  return result;
}

const wrong = (what: string, value: unknown, ids: unknown, allowed: string) =>
  new TinyloomError(
    "invalid-tokens",
    `${what} is ${show(value)}; ${hints.ids?.(what, ids) ?? allowed}`,
  );

/**
 * A copy of the ids. There must be at least one.
 *
 * @param config - of the model that reads them as one text, where they are to be no more than it has positions.
 */
export function toSomeTokens(name: string, ids: unknown, config?: ResolvedConfig): Uint32Array {
  if (config) inspect(name, () => expectFits(name, ids, config), "invalid-tokens");
  return some(name, toTokens(name, ids));
}

/** Refuses more ids than the model has positions: before they are copied, since there may be a hundred million. */
export function expectFits(name: string, ids: unknown, config: ResolvedConfig): void {
  const most = config.max_position_embeddings;
  if (!(Array.isArray(ids) || ArrayBuffer.isView(ids))) return;
  const { length } = ids as Uint32Array;
  if (!(length > most)) return; // a DataView has none
  // As its config spells it.
  const usual = "max_position_embeddings";
  const called = Object.hasOwn({ ...config }, usual) ? usual : "n_positions";
  throw new TinyloomError(
    "invalid-tokens",
    `${name} has ${length} tokens, more than ${called}, ${most}; give a shorter text, such as its last tokens`,
  );
}

/** The tokens of a prompt, and then those drawn. */
export function promptAndDrawn(text: Uint32Array, drawn: readonly number[]): Uint32Array {
  const all = new Uint32Array(text.length + drawn.length);
  all.set(text);
  all.set(drawn, text.length);
  return all;
}

/** The ids, or code "invalid-tokens" where there is none. */
export function some(name: string, tokens: Uint32Array): Uint32Array {
  if (tokens.length === 0) {
    throw new TinyloomError("invalid-tokens", `${name} is empty; give at least one token`);
  }
  return tokens;
}
