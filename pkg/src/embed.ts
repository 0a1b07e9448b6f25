/** Embeddings of texts: the hidden states after the last layer, pooled. */

import { given, type Until } from "./caller-functions.js";
import { expectKnown } from "./known-tokens.js";
import { INFERENCE } from "./model-options.js";
import type { EmbedOptions, HiddenStatesOptions, InferenceOptions } from "./model-types.js";
import { called, check, flag, inspect, invalid, oneOf, type Rules, show } from "./options.js";
import type { ResolvedConfig } from "./resolved-config.js";
import type { TextEncoding } from "./tokenizer-types.js";
import { type TokenIds, toSomeTokens } from "./tokens.js";

const EMBED: Rules<EmbedOptions> = {
  ...INFERENCE,
  tokenizer: (value) =>
    typeof (value as TextEncoding | null)?.encode === "function"
      ? undefined
      : "a tokenizer, which has encode()",
  pooling: oneOf("last", "mean", "first"),
  normalize: flag,
  instruction: (value) => (typeof value === "string" ? undefined : "a text"),
};

/** What is asked of a model. */
interface Embedding {
  readonly config: ResolvedConfig;
  readonly handle: Until["handle"];
  states(tokens: Uint32Array, options: HiddenStatesOptions): Promise<Float32Array>;
}

type Checked = Omit<EmbedOptions, keyof InferenceOptions>;

interface EmbedCall {
  readonly texts: readonly (string | Uint32Array)[];
  readonly options: Checked;
  readonly rest: InferenceOptions;
}

function embedCall(config: ResolvedConfig, given: unknown, all: EmbedOptions): EmbedCall {
  const { tokenizer, pooling, normalize, instruction, ...rest } = check("embed", all, EMBED);
  const texts = inspect("embed", () => {
    if (!Array.isArray(given)) {
      throw invalid(`embed takes an array of texts or of token ids first, not ${show(given)}`);
    }
    return given.map((text: unknown, index) => {
      if (typeof text !== "string") {
        const name = `texts[${index}]`;
        return expectKnown(name, toSomeTokens(name, text as TokenIds, config), config);
      }
      if (tokenizer) return text;
      throw invalid(`texts[${index}] is a text: give the option tokenizer with it, or tokens`);
    });
  });
  const options = { tokenizer, pooling, normalize, instruction } as Checked;
  return { texts, options, rest };
}

/** {@link Model.embed}. */
export async function embed(
  model: Embedding,
  given: unknown,
  all: EmbedOptions,
): Promise<Float32Array[]> {
  const { texts, options, rest } = embedCall(model.config, given, all);
  const { onProgress, ...each } = rest;
  const layer = model.config.num_hidden_layers;
  const told = (loaded: number) =>
    onProgress &&
    called("onProgress", () => onProgress({ loaded, total: texts.length, stage: "embed" }));
  const embeddings = [];
  for (const [index, text] of texts.entries()) {
    told(index);
    const tokens = await tokensOf(model, `texts[${index}]`, text, options, each);
    const states = await model.states(tokens, { ...each, layer });
    embeddings.push(pooled(states, tokens.length, options));
  }
  told(texts.length);
  return embeddings;
}

async function tokensOf(
  model: Embedding,
  name: string,
  text: string | Uint32Array,
  { tokenizer, instruction }: Checked,
  { signal }: InferenceOptions,
): Promise<Uint32Array> {
  if (typeof text !== "string") return text;
  const asked = instruction === undefined ? text : `Instruct: ${instruction}\nQuery:${text}`;
  // With what the tokenizer puts around a text: the token after it is what the last state is of.
  const encode = () => (tokenizer as TextEncoding).encode(asked);
  const until = { signal, handle: model.handle };
  const ids = toSomeTokens(
    name,
    await given("the tokenizer's encode()", encode, until),
    model.config,
  );
  return expectKnown(`the tokenizer's ${name}`, ids, model.config);
}

/** One row of the rows of a text's hidden states, or their mean. */
function pooled(states: Float32Array, rows: number, options: Checked): Float32Array {
  const { pooling = "last", normalize = true } = options;
  const width = states.length / rows;
  const [begin, end] = { last: [rows - 1, rows], first: [0, 1], mean: [0, rows] }[pooling] as [
    number,
    number,
  ];
  const sums = new Float64Array(width);
  for (let row = begin; row < end; row++) {
    for (let i = 0; i < width; i++) {
      sums[i] = (sums[i] as number) + (states[row * width + i] as number);
    }
  }
  const length = normalize ? Math.hypot(...sums) : end - begin;
  // As PyTorch's normalize: a row of zeros stays.
  return Float32Array.from(sums, (sum) => sum / Math.max(length, 1e-12));
}
