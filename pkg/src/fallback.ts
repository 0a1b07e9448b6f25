/** The wasm module's bytes, loaded only where its file does not answer. */
export { default } from "./packed.js";
