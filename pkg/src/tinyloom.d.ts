// Types of the generated wasm-bindgen module (dist/tinyloom.js), so that the sources compile
// before it exists. tests/pkg/package.test.mjs checks the generated declarations against them.
import type { RawModule } from "./raw.js";

declare const init: RawModule["default"];
export default init;
export declare const RawRuntime: RawModule["RawRuntime"];
export declare const RawLoader: RawModule["RawLoader"];
export declare const RawModel: RawModule["RawModel"];
export declare const RawDataset: RawModule["RawDataset"];
export declare const RawTrainer: RawModule["RawTrainer"];
export declare const RawResume: RawModule["RawResume"];
export declare const onPanic: RawModule["onPanic"];
export declare const hasRoom: RawModule["hasRoom"];
