/** The config of a checkpoint, before anything of it is loaded. */

import type { CheckpointSource } from "./file-part.js";
import { openSource } from "./file-source.js";
import { deferredPart } from "./lazy.js";
import type { ModelConfig } from "./model-config.js";
import { check } from "./options.js";
import { LOAD, type LoadOptions } from "./progress.js";
import type { RunHandle } from "./save-types.js";

/**
 * The config of a checkpoint: its `config.json`, or what a GGUF file says in its place. No weights are read. Of a GGUF
 * file on the web only its beginning is fetched, unless `cache` asks for all of it.
 *
 * @param source - as in {@link Model.fromPretrained}.
 * @returns the fields as they are written; `model.config` also has the defaults.
 * @throws {@link TinyloomError} `invalid-checkpoint`, `invalid-config`, `aborted`.
 *
 * @example
 * ```ts
 * const config = await readConfig("hf:org/name");
 * const { bytes } = await estimate(config, { weights: "int4" }, runtime.capabilities);
 * ```
 */
export async function readConfig(
  source: CheckpointSource | RunHandle,
  options: LoadOptions = {},
): Promise<ModelConfig> {
  const files = openSource("readConfig", source, check("readConfig", options, LOAD));
  const { configIn } = await deferredPart();
  return configIn(files);
}
