/** Checks what `generate` and `generateBatch` are called with. */

import type { AdapterOption, WeightedAdapter } from "./adapter-types.js";
import type { WeightFormat } from "./formats.js";
import { kvCache, weights } from "./formats.js";
import type { BatchOptions, BatchPrompt, GenerateOptions } from "./generate-types.js";
import { models } from "./internal.js";
import type { Intervention } from "./interventions-types.js";
import { defaultEnds } from "./notes.js";
import {
  abortSignal,
  check,
  copied,
  flag,
  fraction,
  inspect,
  integer,
  invalid,
  list,
  number,
  type Rules,
  seed,
  tokenizer,
  tokenList,
} from "./options.js";
import type { ResolvedConfig } from "./resolved-config.js";
import { drawnSeed } from "./seeds.js";
import type { TextDecoding } from "./tokenizer-types.js";
import { expectFits, type TokenIds, toSomeTokens } from "./tokens.js";

/** The GPU computes in f32, and may take what is below its normal numbers for 0. */
const [LEAST, MOST] = [1.2e-38, 3.4e38];

/** Whose it is, the call says. */
export const adapter = (value: unknown) =>
  models.find(value)?.base ? undefined : "an Adapter of this model";

/** What texts of a batch take too. */
const BATCH: Rules<BatchOptions> = {
  maxTokens: integer(1, 0xffff_ffff),
  temperature: (value) =>
    value === 0 || number(1e-3, MOST)(value) === undefined
      ? undefined
      : "0, or a number from 0.001 to 3.4e38",
  topK: integer(0, 0xffff_ffff),
  topP: number(LEAST, 1),
  minP: fraction(),
  repetitionPenalty: number(LEAST, MOST),
  seed,
  stopTokens: tokenList,
  stop: (value) =>
    Array.isArray(value) && value.every((text) => typeof text === "string" && text)
      ? undefined
      : "an array of strings that are not empty",
  tokenizer,
  skipSpecialTokens: flag,
  kvCache,
  weights,
  adapter,
  adapters: list,
  interventions: list,
  signal: abortSignal,
};

/** Rules of what `generate` takes. @internal */
export const GENERATE: Rules<GenerateOptions> = {
  ...BATCH,
  alternatives: integer(1, 32),
  bias: (value) =>
    typeof value === "function" || Array.isArray(value) || value instanceof Float32Array
      ? undefined
      : "pairs of token and number, a Float32Array of vocab_size numbers, or a function that gives these",
  promptLookup: flag,
  heal: flag,
};

/** A checked call. @internal */
export interface GenerateCall {
  readonly signal: AbortSignal | undefined;
  readonly tokenizer: TextDecoding | undefined;
  readonly stop: readonly string[] | undefined;
  readonly bias: GenerateOptions["bias"];
  readonly alternatives: number;
  readonly maxTokens: number;
  readonly skipSpecialTokens: boolean;
  readonly heal: boolean;
  readonly seed: number;
  /** A text is encoded when the work begins. */
  readonly prompt: Uint32Array | string;
  readonly adapter: AdapterOption | undefined;
  readonly adapters: readonly WeightedAdapter[] | undefined;
  readonly interventions: readonly Intervention[] | undefined;
  /** Ids that end the text. */
  readonly stopTokens: readonly number[];
  /** The module's own options. */
  readonly json: string;
}

/** What generation reads of a model. @internal */
export interface DecodedModel {
  readonly config: ResolvedConfig;
  readonly weights: WeightFormat;
}

/** Whose generation it is. @internal */
export interface Generating {
  readonly config: ResolvedConfig;
  /** What ends a text by default, as far as the model names it. */
  readonly ends: readonly number[];
  /** The seed where none is given. */
  readonly drawn: number;
}

/** What `generate` was called with: nothing of it changes with the caller's arrays. @internal */
export function generateCall(
  prompt: TokenIds | string,
  options: GenerateOptions,
  { config, ends, drawn }: Generating,
): GenerateCall {
  const { interventions, ...chosen } = check("generate", options, GENERATE);
  const { signal, tokenizer, stop, bias, adapter, adapters, heal, skipSpecialTokens, ...rest } =
    chosen;
  expectTokenizer(tokenizer, { prompt, stop, heal, skipSpecialTokens });
  const vocabulary = config.vocab_size;
  const endToken = inspect("generate: tokenizer", () => tokenizer?.endToken);
  const stopTokens = rest.stopTokens
    ? Array.from(rest.stopTokens)
    : defaultEnds(ends, endToken, vocabulary);
  const beyond = stopTokens.find((id) => id >= vocabulary);
  if (beyond !== undefined) {
    throw invalid(`generate: stopTokens has ${beyond}; give ids below vocab_size, ${vocabulary}`);
  }
  const { seed = drawn } = rest;
  return {
    signal,
    adapter,
    adapters,
    interventions: inspect("generate", () => copied(interventions)),
    tokenizer,
    stop,
    heal: heal ?? false,
    skipSpecialTokens: skipSpecialTokens ?? false,
    seed,
    stopTokens,
    bias: typeof bias === "function" ? bias : inspect("generate", () => copied(bias)),
    alternatives: rest.alternatives ?? 0,
    maxTokens: rest.maxTokens ?? 128,
    prompt: typeof prompt === "string" ? prompt : toSomeTokens("prompt", prompt, config),
    json: JSON.stringify({ ...rest, seed, stopTokens, stepwise: typeof bias === "function" }),
  };
}

/** Refuses what needs a tokenizer where there is none. */
function expectTokenizer(
  tokenizer: TextDecoding | undefined,
  { prompt, ...options }: { readonly [option: string]: unknown },
): void {
  if (typeof prompt === "string" && typeof tokenizer?.encode !== "function") {
    throw invalid(
      `generate: a text as prompt needs ${tokenizer ? "a tokenizer that has encode()" : "the tokenizer that encodes it; give tokenizer"}, ` +
        "or give its tokens",
    );
  }
  const needing = Object.entries(options).find(([, value]) => value)?.[0];
  if (needing && !tokenizer) {
    throw invalid(
      `generate: ${needing} needs the tokenizer that turns tokens into text; give tokenizer`,
    );
  }
}

/** What `generateBatch` was called with, copied, and what its lazy part checks each prompt by. @internal */
export function batchGiven(
  prompts: unknown,
  options: BatchOptions,
  { config, ends }: Omit<Generating, "drawn">,
) {
  const shared = check<BatchOptions>("generateBatch", options, BATCH);
  const { stop, stopTokens, adapters, interventions } = shared;
  const copies = inspect("generateBatch", () => {
    if (Array.isArray(prompts)) {
      if (prompts.length > 256)
        throw invalid(`generateBatch takes 1 to 256 prompts, not ${prompts.length}`);
      for (const [at, one] of prompts.entries())
        expectFits(`prompts[${at}]`, (one as BatchPrompt | undefined)?.prompt ?? one, config);
    }
    return copied({ stop, stopTokens, adapters, prompts });
  });
  const listed: readonly unknown[] = Array.isArray(copies.prompts) ? copies.prompts : [];
  const seeds = Array.from(
    listed,
    (one) => (one as BatchPrompt | undefined)?.seed ?? shared.seed ?? drawnSeed(),
  );
  const call = (prompt: TokenIds | string, given: GenerateOptions, index: number) =>
    generateCall(prompt, given, { config, ends, drawn: seeds[index] as number });
  const changes = inspect("generateBatch", () => copied(interventions));
  return { ...shared, ...copies, interventions: changes, rules: BATCH, call, seeds };
}
