/** Token ids that a model has, judged by the name of the argument: the module knows all ids as `tokens`. */

import { TinyloomError } from "./error.js";
import type { ResolvedConfig } from "./resolved-config.js";

/** Refuses ids that the model does not have, by the name of the argument. */
export function expectKnown(name: string, ids: Uint32Array, config: ResolvedConfig): Uint32Array {
  const { vocab_size: size } = config;
  const at = ids.findIndex((id) => id >= size);
  if (at < 0) return ids;
  throw new TinyloomError(
    "invalid-tokens",
    `${name}[${at}] is ${ids[at]}; the model has ids from 0 to ${size - 1} (its vocab_size is ${size})`,
  );
}
