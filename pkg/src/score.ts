/** What a model says of the tokens of a text, as the module gives it. */

import type { ScoreOptions, Scores } from "./model-types.js";
import type { RawModel } from "./raw-types.js";
import { watched } from "./watch.js";

export async function scores(
  raw: RawModel,
  asked: readonly [Uint32Array, Uint32Array | undefined, Uint32Array | undefined, string],
  options: ScoreOptions,
): Promise<Scores> {
  const [logprobs, entropy, ids, probabilities] = await watched("score", options, (ask) =>
    raw.score(...asked, ask),
  );
  const top = options.top ? { ids, probabilities } : undefined;
  return { logprobs, ...(options.entropy && { entropy }), ...(top && { top }) };
}
