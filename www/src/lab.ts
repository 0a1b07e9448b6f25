import { type Connected, connect, type Runtime } from "tinyloom/worker";

/** The package, which lives in a worker, and the GPU that it has opened there. */
export interface Lab extends Connected {
  readonly runtime: Runtime;
}

/** Opens the worker, and the GPU in it: training then never holds up the page. */
export async function openLab(): Promise<Lab> {
  const tinyloom = await connect();
  return { ...tinyloom, runtime: await tinyloom.Runtime.create() };
}
