import wasm from "tinyloom/tinyloom_bg.wasm?url";
import { type Connected, connect, type RecoveryState, type Runtime } from "tinyloom/worker";
import { RunStore } from "./run-store.ts";
import { BETWEEN } from "./simulated-loss.ts";

/** Milliseconds between two snapshots at least. */
const SNAPSHOTS = 5000;

/** The package, which lives in a worker, and the GPU that it has opened there. */
export interface Lab extends Connected {
  readonly runtime: Runtime;
}

/** What the page has once the GPU is open. */
export interface Open {
  lab: Lab;
  store: RunStore;
}

let opening: Promise<Open> | undefined;
let hear: (state: RecoveryState) => void = () => undefined;

/** Begins to open the worker, and the GPU in it. A driver takes long, and what the page consists of loads meanwhile. */
export function beginLab(): void {
  opening ??= begun();
  opening.catch(() => undefined); // `openLab` reports the error
}

/**
 * Opens the worker, and the GPU and the runs in it: training then never holds up the page.
 *
 * @param onState - hears what becomes of a lost GPU device.
 */
export function openLab(onState: (state: RecoveryState) => void): Promise<Open> {
  hear = onState;
  opening ??= begun();
  return opening;
}

/** The package's module, which comes while the worker starts. Where this fails the package has other ways. */
async function compiled(): Promise<WebAssembly.Module | undefined> {
  if (!navigator.gpu) return undefined;
  return WebAssembly.compileStreaming(fetch(wasm)).catch(() => undefined);
}

async function begun(): Promise<Open> {
  const worker = new Worker(new URL("./model-worker.ts", import.meta.url), { type: "module" });
  const compiling = compiled();
  const tinyloom = await connect({ worker });
  const store = RunStore.open(tinyloom);
  store.catch(() => undefined); // without a GPU nobody asks for it
  const onState = (state: RecoveryState) => hear(state);
  const recover = { onState, snapshotMilliseconds: SNAPSHOTS, snapshotSteps: BETWEEN };
  const module = await compiling;
  const runtime = await tinyloom.Runtime.create({ recover, ...(module && { wasm: module }) });
  return { lab: { ...tinyloom, runtime }, store: await store };
}
