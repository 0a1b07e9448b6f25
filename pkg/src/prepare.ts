/** {@link Model.prepare} and {@link Trainer.prepare}; loaded when they are needed. */

import { overOf, withOver } from "./adapter-parts.js";
import { type DecodedModel, generateCall } from "./generate-options.js";
import type { InnerRuntime } from "./inner-runtime.js";
import type { InnerModel } from "./internal.js";
import { interventionsOf, roomOf } from "./interventions.js";
import { configJson, type ModelConfig } from "./model-config.js";
import { check, integer, object, type Rules } from "./options.js";
import type { PreparedText, PrepareOptions } from "./prepare-types.js";
import { LONG, type LongOptions } from "./progress.js";
import { toldOptions } from "./trainer-options.js";
import type { TrainerOptions } from "./trainer-types.js";
import { watched } from "./watch.js";

const PREPARE: Rules<PrepareOptions> = {
  generate: (value) =>
    value !== true && object(value) !== undefined ? "true, or options of generate" : undefined,
  ...LONG,
};
const TEXTS: Rules<Pick<PreparedText, "sequences" | "tokens">> = {
  sequences: integer(1, 256),
  tokens: integer(1, 0xffff_ffff),
};

/** The tokens of a text by default, where the model has that many positions. */
const USUAL = 256;

export async function prepare(
  model: InnerModel,
  { config, weights }: DecodedModel,
  options: PrepareOptions,
): Promise<void> {
  const { generate, ...long } = check("prepare", options, PREPARE, "generate");
  const { sequences, tokens, ...text } = generate === true ? {} : generate;
  const texts = check("prepare: generate", { sequences, tokens }, TEXTS);
  const by = { config, ends: [], drawn: 0 };
  const { json, bias, heal, interventions, ...over } = generateCall(Uint32Array.of(0), text, by);
  // What is healed is drawn with a bias.
  const own = { weights, ...JSON.parse(json), stepwise: heal || bias !== undefined };
  const most = Math.min(USUAL, config.max_position_embeddings);
  return withOver(overOf(model, over), (handle) =>
    handle.run((raw) => {
      const changed = interventionsOf("prepare", interventions, raw, roomOf(config));
      const [count, longest] = [texts.sequences ?? 1, texts.tokens ?? most];
      return watched("prepare", long, (ask) =>
        raw.prepare(JSON.stringify(own), count, longest, ask, changed),
      );
    }, long.signal),
  );
}

export async function prepareTrainer(
  on: InnerRuntime,
  config: ModelConfig,
  options: TrainerOptions & LongOptions,
): Promise<void> {
  const what = "Trainer.prepare";
  const model = configJson(what, config);
  const { long, json } = toldOptions(what, options);
  return on.call(
    (raw, { RawTrainer }) =>
      watched(what, long, (ask) => RawTrainer.prepare(raw, model, json, ask)),
    long.signal,
  );
}
