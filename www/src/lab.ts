import { type Connected, connect, type RecoveryState, type Runtime } from "tinyloom/worker";
import { BETWEEN } from "./simulated-loss.ts";

/** Milliseconds between two snapshots at least. */
const SNAPSHOTS = 5000;

/** The package, which lives in a worker, and the GPU that it has opened there. */
export interface Lab extends Connected {
  readonly runtime: Runtime;
}

/**
 * Opens the worker, and the GPU in it: training then never holds up the page.
 *
 * @param onState - hears what becomes of a lost GPU device.
 */
export async function openLab(onState: (state: RecoveryState) => void): Promise<Lab> {
  const worker = new Worker(new URL("./model-worker.ts", import.meta.url), { type: "module" });
  const tinyloom = await connect({ worker });
  const recover = { onState, snapshotMilliseconds: SNAPSHOTS, snapshotSteps: BETWEEN };
  return { ...tinyloom, runtime: await tinyloom.Runtime.create({ recover }) };
}
