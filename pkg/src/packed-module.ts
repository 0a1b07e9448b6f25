/** The wasm module's bytes as JavaScript, for where its file does not answer. */

import { packedOfPage } from "./page-services.js";

/** The module as base64 of gzip. */
export async function packedModule(): Promise<string> {
  return packedOfPage() ?? (await import("./packed.js")).default;
}
