// Types of the generated wasm-bindgen module (dist/tinyloom.js), so that the sources compile
// before it exists. tests/package/package.test.mjs checks the generated declarations against them.
import type { RawExports } from "./raw-types.js";

/** What wasm-bindgen writes, evaluated anew: a call of it makes an instance of the module, whose exports it then has. */
export declare function instance(): RawExports &
  ((input: { module_or_path: WebAssembly.Module }) => Promise<unknown>);
