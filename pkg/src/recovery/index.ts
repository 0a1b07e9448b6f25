/** Joins the three levels that come back after a lost GPU device: a runtime, its models, their trainers. */

import { callback, check, integer, type Rules } from "../options.js";
import type { RawHandle } from "../raw-handle.js";
import type { RawTrainer } from "../raw-types.js";
import { DeviceRecovery, type Opening, type Reopening } from "./device-recovery.js";
import { type ModelParts, ModelRecovery } from "./model-recovery.js";
import { TrainerRecovery } from "./trainer-recovery.js";
import type { RecoverOptions } from "./types.js";

const RULES: Rules<RecoverOptions> = {
  attempts: integer(1, 1000),
  snapshotBytes: integer(0, Number.MAX_SAFE_INTEGER),
  snapshotMilliseconds: integer(0, Number.MAX_SAFE_INTEGER),
  snapshotSteps: integer(1, Number.MAX_SAFE_INTEGER),
  onState: callback,
};

/** The recovery of a runtime, which makes that of its models and trainers. */
export class Recovery extends DeviceRecovery {
  /** For a new model. */
  model(parts: ModelParts): ModelRecovery {
    return new ModelRecovery(this, parts);
  }

  /** For a new trainer of the model, or with `options` undefined the one that was resumed with it. */
  trainer(
    model: ModelRecovery,
    handle: RawHandle<RawTrainer>,
    options: string | undefined,
  ): TrainerRecovery {
    return new TrainerRecovery(model, handle, options);
  }
}

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
