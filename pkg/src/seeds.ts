/** Seeds for whoever gives none. Of calls in a worker the page draws them: what such a call returns has them at once. */

import { object } from "./options.js";

/** A seed, drawn by chance. */
export const drawnSeed = () => Math.floor(Math.random() * 2 ** 32);

/** A call's values with its seeds, and what its iterator says of them. */
export interface Seeded {
  readonly values: unknown[];
  readonly own: { readonly seed?: number; readonly seeds?: readonly number[] };
}

interface WithSeed {
  readonly seed?: number;
}

/** Gives options a seed, at that place among the values. What is no object is for the call to refuse. */
export function seeded(values: unknown[], at: number): Seeded {
  const seed = drawnSeed();
  const options = values[at] ?? {};
  if (object(options) !== undefined) return { values, own: { seed } };
  const chosen = Array.from(values);
  chosen[at] = { ...options, seed: (options as WithSeed).seed ?? seed };
  return { values: chosen, own: { seed: (chosen[at] as Required<WithSeed>).seed } };
}

/** Gives each prompt of a batch a seed. */
export function batchSeeded([prompts, options, ...rest]: unknown[]): Seeded {
  if (!Array.isArray(prompts) || object(options ?? {}) !== undefined) {
    return { values: [prompts, options, ...rest], own: { seeds: [] } };
  }
  const shared = (options as WithSeed | undefined)?.seed;
  const given = Array.from(prompts as readonly unknown[], (one) => {
    const own = object(one) === undefined ? (one as WithSeed) : { prompt: one };
    return { ...own, seed: (own as WithSeed).seed ?? shared ?? drawnSeed() };
  });
  return { values: [given, options, ...rest], own: { seeds: given.map(({ seed }) => seed) } };
}
