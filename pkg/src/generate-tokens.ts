/** The text that a model draws after a prompt, token by token. */

import { drawnOver, overOf } from "./adapter-parts.js";
import type { CallQueue } from "./call-queue.js";
import { throwIfAborted } from "./error.js";
import type { DecodedModel } from "./generate-options.js";
import { batchGiven, type GenerateCall, generateCall } from "./generate-options.js";
import type {
  BatchGeneration,
  BatchOptions,
  BatchPrompt,
  BatchToken,
  GeneratedToken,
  GenerateOptions,
  Generation,
} from "./generate-types.js";
import { models } from "./internal.js";
import { deferredPart } from "./lazy.js";
import { dispose, type RawHandle } from "./raw-handle.js";
import type { RawGeneration, RawModel } from "./raw-types.js";
import { drawnSeed } from "./seeds.js";
import type { Biases } from "./token-bias.js";
import { promptAndDrawn, type TokenIds } from "./tokens.js";
import { evaluated } from "./watch.js";

type Tokens = AsyncGenerator<GeneratedToken, void, undefined>;

/** A checked call on a model. @internal */
export interface Call extends Omit<GenerateCall, "adapter" | "adapters"> {
  /** Of the model, or of the adapter over it. */
  readonly handle: RawHandle<RawModel>;
  readonly queue: CallQueue;
}

/** {@link Model.generate}. */
export function generation(
  model: DecodedModel,
  prompt: TokenIds | string,
  options: GenerateOptions,
): Generation {
  let seed = drawnSeed();
  const { queue, notes } = models.of(model);
  const call = evaluated(() => {
    const by = { config: model.config, ends: notes.ends, drawn: seed };
    const { adapter, adapters, ...chosen } = generateCall(prompt, options, by);
    seed = chosen.seed;
    const over = overOf(models.of(model), { adapter, adapters });
    return [over, { ...chosen, queue }] as const;
  });
  const tokens = async function* (): Tokens {
    const [over, chosen] = call();
    yield* drawnOver(over, (handle) => tokensOfGeneration(model, { ...chosen, handle }));
  };
  return Object.assign(tokens(), { seed });
}

/** {@link Model.generateBatch}. */
export function batchGeneration(
  model: DecodedModel,
  prompts: readonly (TokenIds | string | BatchPrompt)[],
  options: BatchOptions,
): BatchGeneration {
  let seeds: readonly number[] = [];
  const { ends } = models.of(model).notes;
  const call = evaluated(() => {
    const given = batchGiven(prompts, options, { config: model.config, ends });
    seeds = given.seeds;
    return given;
  });
  const tokens = async function* (): AsyncGenerator<BatchToken, void, undefined> {
    const given = call();
    const { tokensOfBatch } = await deferredPart();
    yield* tokensOfBatch(given, model);
  };
  return Object.assign(tokens(), { seeds });
}

async function* tokensOfGeneration({ config, weights }: DecodedModel, chosen: Call): Tokens {
  const { signal, tokenizer, bias, alternatives, json } = chosen;
  throwIfAborted(signal, "generate");
  // Without these the prompt is of tokens.
  const part = await deferredPart();
  const begun = tokenizer || bias ? await part.begun(chosen, config) : undefined;
  const { ids = chosen.prompt as Uint32Array, biases, withText, healing } = begun ?? {};
  part.expectKnown("prompt", ids, config);
  const drawn: number[] = [];
  let madeOn: RawModel | undefined;
  let generation: RawGeneration | undefined;
  let healed = false;
  /** The raw generation. It is made at the first call, and again after a lost device and when the prompt's end is healed. */
  const started = async (raw: RawModel): Promise<RawGeneration> => {
    const heals = healing?.done === false;
    if (generation && madeOn === raw && healed !== heals) return generation;
    if (generation) dispose(generation);
    generation = undefined;
    healed = !heals;
    const text = promptAndDrawn(ids, drawn);
    const own = heals && { stepwise: true, promptLookup: false };
    const options = { weights, ...JSON.parse(json), ...own, drawn: drawn.length };
    madeOn = raw;
    const fixed = heals ? undefined : biases?.fixed;
    const { interventions } = chosen;
    const changed =
      interventions &&
      part.interventionsOf("generate", interventions, raw, {
        positions: config.max_position_embeddings,
        of: "the model",
      });
    generation = await raw.generate(text, JSON.stringify(options), fixed, changed);
    return generation;
  };
  const next = (bias?: Float32Array) =>
    chosen.handle.run(async (raw) => {
      const pairs = await (await started(raw)).next(bias);
      for (let at = 0; at < pairs.length; at += 2 + 2 * alternatives) {
        drawn.push(pairs[at] as number);
      }
      return pairs;
    }, signal);
  await chosen.handle.run(async (raw) => void (await started(raw)), signal);
  try {
    const tokens = drawnTokens(next, chosen, biases);
    yield* withText ? withText(tokens) : tokens;
  } finally {
    // Of a module that has panicked nothing is given back, as the error of its call says.
    await chosen.queue.run(() => generation && dispose(generation)).catch(() => undefined);
  }
}

/**
 * The tokens, with what the caller asked about each.
 *
 * @param next - gives pairs of token and log-probability: a draw, then the alternatives to it.
 */
async function* drawnTokens(
  next: (bias?: Float32Array) => Promise<Float64Array>,
  { signal, alternatives }: Call,
  biases: Biases | undefined,
): Tokens {
  for (;;) {
    throwIfAborted(signal, "generate");
    const bias = await biases?.next?.();
    throwIfAborted(signal, "generate");
    const pairs = await next(bias);
    if (pairs.length === 0) return;
    const choice = (index: number) => ({
      token: pairs[2 * index] as number,
      logprob: pairs[2 * index + 1] as number,
    });
    for (let index = 0; 2 * index < pairs.length; index += 1 + alternatives) {
      throwIfAborted(signal, "generate");
      const drawn = choice(index);
      biases?.drew(drawn.token);
      const others = (_: unknown, place: number) => choice(index + 1 + place);
      yield alternatives
        ? { ...drawn, alternatives: Array.from({ length: alternatives }, others) }
        : drawn;
    }
  }
}
