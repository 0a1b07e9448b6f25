/** Threads of Node, where there is no `Worker`. */

import { inNode, threads } from "../node.js";
import { CONNECT } from "./wire.js";

/** Calls `connected` with the port of each connection that is opened to this thread or worker. */
export function onConnect(connected: (port: MessagePort) => void): void {
  const take = (data: unknown) => {
    const port = (data as { [CONNECT]?: MessagePort } | null)?.[CONNECT];
    if (port) connected(port);
  };
  if (inNode() && typeof (globalThis as { postMessage?: unknown }).postMessage !== "function") {
    void threads().then(({ parentPort }) => parentPort?.on("message", take));
  } else {
    globalThis.addEventListener("message", (event) => take((event as MessageEvent).data));
  }
}

/** Puts a GPU object of npm `webgpu` where a page has its own, if there is none and it is installed. */
export async function provideGpu(): Promise<void> {
  const scope = globalThis as { navigator?: { gpu?: object } };
  if (!inNode() || scope.navigator?.gpu) return;
  const specifier = "webgpu";
  try {
    const { create } = (await import(/* @vite-ignore */ /* webpackIgnore: true */ specifier)) as {
      create(options: string[]): object;
    };
    const property = { configurable: true, enumerable: true, writable: true };
    const gpu = create([]);
    if (scope.navigator) Object.defineProperty(scope.navigator, "gpu", { ...property, value: gpu });
    else Object.defineProperty(globalThis, "navigator", { ...property, value: { gpu } });
  } catch {
    // Runtime.create says that there is no GPU object, and what to do.
  }
}
