import type { Capabilities } from "tinyloom/worker";

const GIB = 2 ** 30;
/** What the page may take: a browser's tab gets little more, and no browser tells how much. */
const MOST = 8 * GIB;

/** Bytes that a model and its trainer may take. A software adapter takes them of the machine's own memory. */
export function memoryLimit({ software }: Capabilities): number {
  // In GiB, rounded down, and at most 8. Firefox and Safari do not tell.
  const { deviceMemory = 4 } = navigator as Navigator & { deviceMemory?: number };
  return software ? (deviceMemory * GIB) / 2 : MOST;
}
