/** What a model says of the tokens of a text, as the module gives it. */

import { interventionsOf } from "./interventions.js";
import type { ScoreOptions, Scores } from "./model-types.js";
import type { RawModel } from "./raw-types.js";
import { watched } from "./watch.js";

type Given = [Float32Array, Float32Array, Uint32Array, Float32Array];

export async function scores(
  raw: RawModel,
  asked: readonly [Uint32Array, Uint32Array | undefined, Uint32Array | undefined, string],
  options: ScoreOptions,
  where = "score",
): Promise<Scores> {
  const [{ length: positions }, , documents] = asked;
  const room = documents
    ? { positions: longest(documents), of: "the longest document" as const }
    : { positions };
  const changed = interventionsOf(where, options.interventions, raw, room);
  const given = await watched(where, options, (ask) => raw.score(...asked, ask, changed));
  const [logprobs, entropy, ids, probabilities] = given as Given;
  const top = options.top !== undefined ? { ids, probabilities } : undefined;
  return { logprobs, ...(options.entropy && { entropy }), ...(top && { top }) };
}

/** The tokens of the longest document. */
const longest = (starts: Uint32Array) =>
  starts.reduce((most, start, at) => Math.max(most, at - start + 1), 0);
