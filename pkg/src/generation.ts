/** The text that a model draws behind a prompt, token by token. */

import type { BatchCall } from "./batch.js";
import type { Biases } from "./decoding.js";
import { throwIfAborted } from "./error.js";
import type { BatchToken, GenerateCall, GeneratedToken } from "./generate.js";
import { end, type Handle, type Queue } from "./handle.js";
import { morePart } from "./lazy.js";
import type { Model } from "./model.js";
import type { RawGeneration, RawModel } from "./raw.js";
import { behind } from "./tokens.js";

type Tokens = AsyncGenerator<GeneratedToken, void, undefined>;

/** A checked call on a model. */
interface Call extends Omit<GenerateCall, "adapter"> {
  /** Of the model, or of the adapter over it. */
  readonly handle: Handle<RawModel>;
  readonly queue: Queue;
}

/** {@link Model.generateBatch}. */
export async function* generatedBatch(
  call: () => BatchCall,
): AsyncGenerator<BatchToken, void, undefined> {
  const given = call();
  yield* (await morePart()).generatedBatch(...given);
}

/** {@link Model.generate}. */
export async function* generated({ config, weights }: Model, call: () => Call): Tokens {
  const chosen = call();
  const { signal, tokenizer, bias, alternatives, ids, json } = chosen;
  throwIfAborted(signal, "generate");
  const more = tokenizer || bias ? await morePart() : undefined;
  const withText = tokenizer && more?.withText(tokenizer, chosen);
  const biases = bias && more?.biases(bias, config, chosen);
  const drawn: number[] = [];
  let by: RawModel | undefined;
  let generation: RawGeneration | undefined;
  /** The first time, or after a lost device: then behind the tokens that were drawn before. */
  const started = async (raw: RawModel): Promise<RawGeneration> => {
    if (generation && by === raw) return generation;
    if (generation) end(generation);
    generation = undefined;
    const text = behind(ids, drawn);
    const options = JSON.stringify({ weights, ...JSON.parse(json), drawn: drawn.length });
    by = raw;
    generation = await raw.generate(text, options, biases?.fixed);
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
    const tokens = tokensOf(next, chosen, biases);
    yield* withText ? withText(tokens) : tokens;
  } finally {
    // Of a module that has panicked nothing is given back, as the error of its call says.
    await chosen.queue.run(() => generation && end(generation)).catch(() => undefined);
  }
}

/**
 * The tokens, with what the caller asked about each.
 *
 * @param next - gives pairs of token and log-probability: a draw, then the alternatives to it.
 */
async function* tokensOf(
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
