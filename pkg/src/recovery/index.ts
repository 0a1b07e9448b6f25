/** What brings back what was lost with a GPU device. Loaded by `Runtime.create`, unless it is switched off. */

import { callback, check, integer, type Rules } from "../options.js";
import { type Opening, Recovery, type Reopening } from "./device-recovery.js";
import type { RecoverOptions } from "./types.js";

const RULES: Rules<RecoverOptions> = {
  attempts: integer(1, 1000),
  snapshotBytes: integer(0, Number.MAX_SAFE_INTEGER),
  snapshotMilliseconds: integer(0, Number.MAX_SAFE_INTEGER),
  snapshotSteps: integer(1, Number.MAX_SAFE_INTEGER),
  onState: callback,
};

/**
 * Checks the options; the function that this gives begins to watch a runtime.
 *
 * @param opening - how the first device was opened.
 */
export function recovering(
  recover: boolean | RecoverOptions | undefined,
  opening: Opening,
): (reopening: Reopening) => Recovery {
  const given = typeof recover === "object" ? recover : {};
  const chosen = check<RecoverOptions>("Runtime.create: recover", given, RULES);
  return (reopening) => new Recovery(reopening, chosen, opening);
}
