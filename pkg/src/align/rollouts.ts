/** Texts that a model writes for prompts, and what they are worth. */

import { either } from "../abortable.js";
import type { Adapter } from "../adapter.js";
import type { Model } from "../model.js";
import { awaited, invalid, show } from "../options.js";
import type { TextDecoding } from "../tokenizer-types.js";
import { type TokenIds, toSomeTokens } from "../tokens.js";

/** A text that the model wrote for a prompt. */
export interface Rollout {
  /** The place of its prompt in the list. */
  readonly index: number;
  readonly prompt: Uint32Array;
  /** What follows the prompt, with the stop token where the text came to it. */
  readonly tokens: Uint32Array;
  /** The same as text, without the stop token; empty without a `tokenizer`. */
  readonly text: string;
  /** Whether it came to the stop token. Otherwise `maxTokens` or the model's context cut it. */
  readonly finished: boolean;
}

/** The worth of a text; larger is better. */
export type Reward = (rollout: Rollout) => number | Promise<number>;

/** What texts are drawn from. */
export interface Source {
  readonly model: Model;
  readonly adapter: Adapter | undefined;
  readonly temperature: number;
  readonly maxTokens: number;
  readonly stopToken: number | undefined;
  readonly tokenizer: TextDecoding | undefined;
  readonly signal: AbortSignal | undefined;
}

/** Most prompts of a `generateBatch`. */
const BATCH = 256;

/** A 32-bit number that follows from others (the finaliser of MurmurHash3 by Appleby). */
export function mixed(...numbers: readonly number[]): number {
  let bits = 0;
  for (const number of numbers) {
    bits = (bits ^ number) + 0x9e37_79b9;
    bits = Math.imul(bits ^ (bits >>> 16), 0x85eb_ca6b);
    bits = Math.imul(bits ^ (bits >>> 13), 0xc2b2_ae35);
    bits ^= bits >>> 16;
  }
  return bits >>> 0;
}

/** A text to draw. */
export interface Asked {
  /** The place of its prompt in the list. */
  readonly index: number;
  readonly prompt: TokenIds;
  readonly seed: number;
}

/** Draws the texts. */
export async function rollOut(source: Source, asked: readonly Asked[]): Promise<Rollout[]> {
  const { model, adapter, temperature, maxTokens, stopToken, tokenizer, signal } = source;
  const made: Rollout[] = [];
  for (let from = 0; from < asked.length; from += BATCH) {
    const texts = asked.slice(from, from + BATCH).map(({ index, prompt, seed }) => ({
      index,
      prompt: toSomeTokens(`prompts[${index}]`, prompt),
      seed,
      tokens: [] as number[],
      text: "",
    }));
    const drawn = model.generateBatch(
      texts.map(({ prompt, seed }) => ({ prompt, seed })),
      {
        temperature,
        maxTokens,
        stopTokens: stopToken === undefined ? [] : [stopToken],
        ...(adapter && { adapter }),
        ...(tokenizer && { tokenizer }),
        ...(signal && { signal }),
      },
    );
    for await (const { index, token, text } of drawn) {
      const own = texts[index] as (typeof texts)[number];
      own.tokens.push(token);
      own.text += text ?? "";
    }
    const context = model.config.max_position_embeddings;
    for (const { index, prompt, tokens, text } of texts) {
      const room = Math.min(maxTokens, context - prompt.length);
      const finished = tokens.length < room;
      const ids = finished && stopToken !== undefined ? [...tokens, stopToken] : tokens;
      made.push({ index, prompt, tokens: Uint32Array.from(ids), text, finished });
    }
  }
  return made;
}

/** The rewards of texts, which are asked for all at once, until the signal fires. */
export function rewardsOf(
  where: string,
  reward: Reward,
  rollouts: readonly Rollout[],
  signal?: AbortSignal,
): Promise<number[]> {
  const rewards = rollouts.map(async (rollout) => {
    // What it does to its lists shall not change what is trained on.
    const own = { ...rollout, prompt: rollout.prompt.slice(), tokens: rollout.tokens.slice() };
    const given: unknown = await awaited(`${where}: reward`, () => reward(own));
    if (isReward(given)) return given;
    throw invalid(
      `${where}: reward() gave ${show(given)}; it must give a number from -1e30 to 1e30`,
    );
  });
  return either(Promise.all(rewards), signal, undefined, where);
}

/** Numbers whose squares and differences are finite. */
const isReward = (given: unknown): given is number =>
  typeof given === "number" && Math.abs(given) <= 1e30;
