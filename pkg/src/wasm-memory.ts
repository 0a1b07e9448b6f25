/** Refuses what the module's memory has no room for. */

import { TinyloomError } from "./error.js";
import type { RawModule } from "./raw-types.js";

/** Bytes below which the module's memory is not asked for room first. */
export const SMALL = 1 << 20;

/** Refuses what the module's memory has no room for: an allocation that fails there ends it. */
export function expectRoom(module: RawModule, what: string, bytes: number): void {
  if (bytes <= SMALL || module.hasRoom(bytes)) return;
  throw new TinyloomError(
    "out-of-memory",
    `${what} takes ${bytes} bytes, and the module's own memory has no room for them`,
  );
}
