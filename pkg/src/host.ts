/** What the wasm module expects of its host, where the host is neither a page nor a worker. */

/**
 * The module looks for `navigator.gpu` in the manner of a page or of a worker, and tells GPU errors
 * apart by their classes. Node has none of these, so this defines them before the first device is
 * made. It does nothing in a page or in a worker.
 *
 * - `navigator.gpu`: the GPU object that the caller passed (with `defineProperty`, since plain
 *   assignment to `navigator` throws from Node 21 on);
 * - `WorkerGlobalScope`: a class whose only instance is the global object;
 * - `GPUValidationError` and the other classes and constants: the `globals` of npm `webgpu`, unless
 *   they are defined already.
 */
export async function prepareHost(gpu: object): Promise<void> {
  const scope = globalThis as Record<string, unknown>;
  if (scope.Window !== undefined) return;
  if (scope.WorkerGlobalScope !== undefined && !ours.has(scope.WorkerGlobalScope)) return;
  if (scope.GPUValidationError === undefined) await copyGlobals(scope);
  scope.WorkerGlobalScope ??= workerScope();
  const property = { configurable: true, enumerable: true, writable: true };
  if (scope.navigator === undefined) {
    Object.defineProperty(globalThis, "navigator", { ...property, value: { gpu } });
  } else if ((scope.navigator as { gpu?: object }).gpu !== gpu) {
    Object.defineProperty(scope.navigator, "gpu", { ...property, value: gpu });
  }
}

/** The classes made here, to be told from a real worker's. */
const ours = new Set<unknown>();

function workerScope(): unknown {
  const WorkerGlobalScope = () => undefined;
  const isGlobal = (value: unknown) => value === globalThis;
  Object.defineProperty(WorkerGlobalScope, Symbol.hasInstance, { value: isGlobal });
  ours.add(WorkerGlobalScope);
  return WorkerGlobalScope;
}

async function copyGlobals(scope: Record<string, unknown>): Promise<void> {
  const specifier = "webgpu"; // a variable, so that bundlers for the web leave it alone
  try {
    const module: { globals?: object } = await import(
      /* @vite-ignore */ /* webpackIgnore: true */ specifier
    );
    for (const [name, value] of Object.entries(module.globals ?? {})) scope[name] ??= value;
  } catch {
    // Another implementation of WebGPU: its classes are the caller's to define.
  }
}
