/** Loads the wasm module, and a fresh instance of it after a panic. */

import { TinyloomError, toError } from "./error.js";
import { InstanceLife } from "./instance-life.js";
import type { RawModule } from "./raw-types.js";
import { instance } from "./tinyloom.js";
import { compileModule, type ModuleSource } from "./wasm-compile.js";

let loading: Promise<RawModule> | undefined;
let loaded: RawModule | undefined;
let compiled: WebAssembly.Module | undefined;

/**
 * Loads the wasm module once; later calls share the first one's. A failed load may be tried again, and
 * after a panic the next call gives a fresh instance.
 */
export function loadRaw(source?: ModuleSource): Promise<RawModule> {
  loading ??= instantiate(source).catch((error: unknown) => {
    loading = undefined;
    throw error;
  });
  return loading;
}

/** The instance that serves, if `Runtime.create` has loaded one. */
export function loadedRaw(): RawModule | undefined {
  return loaded;
}

async function instantiate(source: ModuleSource | undefined): Promise<RawModule> {
  // Not by `import()`, which a service worker refuses.
  const made = instance();
  const raw: RawModule = Object.assign(new InstanceLife(), made);
  compiled ??= await compileModule(source);
  try {
    await made({ module_or_path: compiled });
  } catch (cause) {
    compiled = undefined;
    throw new TinyloomError(
      source === undefined ? "internal" : "invalid-options",
      `the wasm module does not fit this version of tinyloom (${toError(cause).message}); ` +
        "serve the tinyloom_bg.wasm that came with it",
      { cause },
    );
  }
  raw.onPanic((message) => {
    if (loaded === raw) loading = loaded = undefined;
    raw.panicked(message);
  });
  loaded = raw;
  return raw;
}
