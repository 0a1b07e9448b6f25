// The generated declarations of the wasm module satisfy the hand-written boundary.

import type { RawModule } from "../../../pkg/dist/raw.js";
import type * as generated from "../../../pkg/dist/tinyloom.js";

type Constructors = Omit<RawModule, "default">;
export const check = (module: typeof generated): Constructors => module;
