/** What `config.json` would be, of the metadata of a GGUF file. */

import type { ModelConfig } from "../model-config.js";
import { show } from "../options.js";
import type { RopeParameters } from "../rope-parameters.js";
import { rulesOf } from "./families.js";
import type { Fields, Has } from "./family.js";
import { type Keys, refused, shortest } from "./metadata.js";
import { GGUF_NAMES } from "./names.js";
import { LONG_FACTORS, ROPE_FREQS, SHORT_FACTORS } from "./rope.js";
import { fittedFactors } from "./rope-factors.js";

/** What a file says of its tensors that its config depends on. */
export interface OfTensors {
  /** Rows of the embedding. */
  readonly vocabulary: number;
  /** Whether the file has a tensor. */
  readonly has: Has;
  readonly divisors: Divisors;
}

/** What angles are divided by, by the names of tensors. */
export type Divisors = ReadonlyMap<string, Float32Array>;

/** The family of a file by `model_type`: the first that has its architecture. */
export function familyIn(keys: Keys): string {
  const architecture = keys.text("general.architecture");
  const found = Object.entries(GGUF_NAMES).find(([, one]) => one.architecture === architecture);
  if (found) return found[0];
  const known = new Set(Object.values(GGUF_NAMES).map((one) => one.architecture));
  throw refused(
    `${keys.place}: general.architecture is ${show(architecture)}; ${[...known].join(", ")} are read`,
  );
}

/** Fields with every family's names, of keys that every family has. */
export function configOf(keys: Keys, type: string, tensors: OfTensors): ModelConfig {
  const { architecture } = GGUF_NAMES[type] as (typeof GGUF_NAMES)[string];
  const prefix = `${architecture}.`;
  const rms = keys.number(`${prefix}attention.layer_norm_rms_epsilon`);
  const heads = keys.needed(`${prefix}attention.head_count`);
  const hidden = keys.needed(`${prefix}embedding_length`);
  const config: Fields = {
    model_type: type,
    vocab_size: tensors.vocabulary,
    hidden_size: hidden,
    intermediate_size: keys.needed(`${prefix}feed_forward_length`),
    num_hidden_layers: keys.needed(`${prefix}block_count`),
    num_attention_heads: heads,
    num_key_value_heads: keys.number(`${prefix}attention.head_count_kv`) ?? heads,
    head_dim: keys.number(`${prefix}attention.key_length`) ?? hidden / heads,
    max_position_embeddings: keys.needed(`${prefix}context_length`),
    rms_norm_eps: rms ?? keys.needed(`${prefix}attention.layer_norm_epsilon`),
    tie_word_embeddings: !tensors.has("output.weight"),
  };
  const values = keys.number(`${prefix}attention.value_length`) ?? config["head_dim"];
  if (values !== config["head_dim"]) {
    throw refused(
      `${keys.place}: ${prefix}attention.value_length is ${values}, and key_length ${config["head_dim"]}; tinyloom has ` +
        "heads of one size",
    );
  }
  const { read, biases = namedBiases } = rulesOf(type);
  const own = read(keys, prefix, { ...config, ...special(keys), ...biases(tensors.has) });
  addDivisors(keys, own, tensors.divisors);
  // What says how a file was made, or repeats what tensors say.
  keys.drop(`${prefix}vocab_size`, `${prefix}tensor_data_layout`, `${prefix}attention.causal`);
  keys.drop(`${prefix}rope.scaling.finetuned`);
  keys.expectAllTaken(prefix);
  const name = keys.text("general.name");
  return { ...own, ...(name && { _name_or_path: name }) } as ModelConfig;
}

/** Ids of special tokens, under the names of configs. */
function special(keys: Keys): Fields {
  const ids: Fields = {};
  for (const name of ["bos", "eos"]) {
    const id = keys.number(`tokenizer.ggml.${name}_token_id`);
    if (id !== undefined) ids[`${name}_token_id`] = id;
  }
  // transformers takes id 0 of a Gemma that does not say.
  ids["pad_token_id"] = keys.number("tokenizer.ggml.padding_token_id") ?? null;
  return ids;
}

/** Biases that a decoder's fields tell. */
const namedBiases = (has: Has): Fields => ({
  ...(has("blk.0.attn_output.bias") && { attention_bias: true }),
  ...(has("blk.0.ffn_up.bias") && { mlp_bias: true }),
});

/** Divisors of angles stand for Llama 3's scaling, and two lists of them for longrope. */
function addDivisors(keys: Keys, config: Fields, divisors: Divisors): void {
  const factors = divisors.get(ROPE_FREQS);
  if (factors) addFactors(keys, config, factors);
  const [long, short] = [LONG_FACTORS, SHORT_FACTORS].map((name) => divisors.get(name));
  const rope = config["rope_parameters"] as RopeParameters | undefined;
  if (!long && !short && rope?.rope_type !== "longrope") return;
  if (!long || !short) {
    throw refused(
      `${keys.place} has not both ${LONG_FACTORS} and ${SHORT_FACTORS}, which longrope needs`,
    );
  }
  const prefix = `${keys.text("general.architecture")}.rope.scaling`;
  if (rope && rope.rope_type !== "longrope" && rope.rope_type !== "default") {
    throw refused(`${keys.place} has ${LONG_FACTORS}, and ${prefix}.type is ${rope.rope_type}`);
  }
  const original =
    keys.number(`${prefix}.original_context_length`) ?? config["max_position_embeddings"];
  // Phi-3 reads it there alone.
  config["original_max_position_embeddings"] = original;
  config["rope_parameters"] = {
    ...rope,
    rope_type: "longrope",
    long_factor: Array.from(long, shortest),
    short_factor: Array.from(short, shortest),
    original_max_position_embeddings: original,
    attention_factor: keys.number(`${prefix}.attn_factor`) ?? 1,
  };
}

function addFactors(keys: Keys, config: Fields, factors: Float32Array): void {
  const { rope_theta, head_dim } = config as { rope_theta: number; head_dim: number };
  const fitted = fittedFactors(factors, rope_theta, head_dim);
  if (!fitted) {
    throw refused(
      `${keys.place}: rope_freqs.weight has divisors of angles that are not those of Llama 3's scaling, which tinyloom ` +
        "computes",
    );
  }
  config["rope_parameters"] = { rope_theta, ...fitted };
}
