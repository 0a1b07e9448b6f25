// Loads a module of the demo page, which is TypeScript, into Node.
// reads: package.json
import { join } from "node:path";
import { runnerImport } from "vite";
import { root } from "../../scripts/lib.mjs";

/** @param path - below `www`, without its ending. */
export async function pageModule(path) {
  const file = join(root, "www", `${path}.ts`);
  return (await runnerImport(file, { configFile: false, logLevel: "error" })).module;
}
