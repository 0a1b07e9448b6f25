/** What `config.json` would be, of the metadata of a GGUF file. */

import type { ModelConfig } from "../model-config.js";
import { show } from "../options.js";
import type { RopeParameters } from "../rope-parameters.js";
import { GRANITE_FACTORS } from "./granite.js";
import { type Keys, refused, shortest } from "./metadata.js";
import { GGUF_NAMES } from "./names.js";
import { LONG_FACTORS, ROPE_FREQS, SHORT_FACTORS } from "./rope.js";
import { fittedFactors } from "./rope-factors.js";

/** What a file says of its tensors that its config depends on. */
export interface OfTensors {
  /** Rows of the embedding. */
  readonly vocabulary: number;
  /** Whether the file has a tensor. */
  has(name: string): boolean;
  readonly divisors: Divisors;
}

/** What angles are divided by, by the names of tensors. */
export type Divisors = ReadonlyMap<string, Float32Array>;

type Fields = { [name: string]: unknown };

/** A family's own fields, of the keys behind its prefix. */
type Read = (keys: Keys, prefix: string, config: Fields) => Fields;

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
  const read = Object.hasOwn(FAMILIES, type) ? (FAMILIES[type] as Read) : decoder;
  const own = read(keys, prefix, { ...config, ...special(keys), ...biases(tensors, type) });
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

/** Fields of families whose biases no key tells. */
function biases({ has }: OfTensors, type: string): Fields {
  if (type === "stablelm") return { use_qkv_bias: has("blk.0.attn_q.bias") };
  return {
    ...(has("blk.0.attn_output.bias") && { attention_bias: true }),
    ...(has("blk.0.ffn_up.bias") && { mlp_bias: true }),
  };
}

const ROPE = "rope.freq_base";
/** What llama.cpp takes where a file has no base of angles. */
const BASE = 10_000;

/** The rotary embedding, without its base. */
function scaling(keys: Keys, prefix: string, positions: unknown): Fields {
  const key = (name: string) => `${prefix}rope.scaling.${name}`;
  const old = keys.number(`${prefix}rope.scale_linear`);
  const type = keys.text(key("type")) ?? (old === undefined ? "none" : "linear");
  const factor = keys.number(key("factor")) ?? old ?? 1;
  const original = keys.number(key("original_context_length"));
  if (type === "none" || (type === "linear" && factor === 1)) {
    keys.drop(key("attn_factor"));
    return { rope_type: "default" };
  }
  if (type === "linear") return { rope_type: "linear", factor };
  if (type === "longrope") return { rope_type: "longrope" };
  if (type !== "yarn") {
    throw refused(
      `${keys.place}: ${key("type")} is ${show(type)}; none, linear, yarn and longrope are read`,
    );
  }
  const more = keys.number(key("yarn_attn_factor")) ?? keys.number(key("attn_factor")) ?? 1;
  return {
    rope_type: "yarn",
    factor,
    original_max_position_embeddings: original ?? positions,
    attention_factor: more * (factor <= 1 ? 1 : 0.1 * Math.log(factor) + 1),
    beta_fast: keys.number(key("yarn_beta_fast")) ?? 32,
    beta_slow: keys.number(key("yarn_beta_slow")) ?? 1,
  };
}

/** A decoder as Llama began it. */
function decoder(keys: Keys, prefix: string, config: Fields): Fields {
  const turned = keys.number(`${prefix}rope.dimension_count`) ?? config["head_dim"];
  if (turned !== config["head_dim"]) {
    throw refused(
      `${keys.place}: ${prefix}rope.dimension_count is ${turned}, and a head has ${config["head_dim"]} elements; of this ` +
        "family tinyloom rotates whole heads",
    );
  }
  const rope_theta = keys.number(`${prefix}${ROPE}`) ?? BASE;
  const scaled = scaling(keys, prefix, config["max_position_embeddings"]);
  return { ...config, rope_theta, rope_parameters: { rope_theta, ...scaled } };
}

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

/** What llama.cpp knows of Gemma 2 and 3 without a key. */
interface Usual {
  readonly period: number;
  /** Layers of the model whose scores are divided by √(hidden_size / heads) instead of √head_dim. */
  readonly scaledByHidden: number;
}

function gemma(keys: Keys, prefix: string, config: Fields, usual: Usual): Fields {
  const { num_hidden_layers: layers, num_attention_heads: heads } = config as {
    num_hidden_layers: number;
    num_attention_heads: number;
  };
  const period = keys.number(`${prefix}attention.sliding_window_pattern`) ?? usual.period;
  const full = (layer: number) => (layer + 1) % period === 0;
  return {
    ...decoder(keys, prefix, config),
    query_pre_attn_scalar:
      layers === usual.scaledByHidden
        ? Math.floor((config["hidden_size"] as number) / heads)
        : config["head_dim"],
    layer_types: Array.from({ length: layers }, (_, layer) =>
      full(layer) ? "full_attention" : "sliding_attention",
    ),
  };
}

/** A decoder that rotates the beginning of each head. */
function partlyRotated(keys: Keys, prefix: string, config: Fields): Fields {
  const head = config["head_dim"] as number;
  const partial_rotary_factor = (keys.number(`${prefix}rope.dimension_count`) ?? head) / head;
  const rope_theta = keys.number(`${prefix}${ROPE}`) ?? BASE;
  const scaled = scaling(keys, prefix, config["max_position_embeddings"]);
  const rope_parameters = { rope_theta, partial_rotary_factor, ...scaled };
  return { ...config, partial_rotary_factor, rope_theta, rope_parameters };
}

/** Beside what a decoder has. */
function granite(keys: Keys, prefix: string, config: Fields): Fields {
  const factors = Object.entries(GRANITE_FACTORS).map(([key, field]) => [
    field,
    keys.number(`${prefix}${key}`) ?? (key === "attention.scale" ? undefined : 1),
  ]);
  return { ...decoder(keys, prefix, config), ...Object.fromEntries(factors) };
}

const FAMILIES: { readonly [type: string]: Read } = {
  granite,
  phi3: (keys, prefix, config) => ({
    ...partlyRotated(keys, prefix, config),
    sliding_window: keys.number(`${prefix}attention.sliding_window`) || null,
  }),
  stablelm(keys, prefix, config) {
    const { head_dim: _, rms_norm_eps, ...rest } = partlyRotated(keys, prefix, config);
    const parallel = keys.flag(`${prefix}use_parallel_residual`) ?? false;
    // A config without the field is the same.
    const blocks = parallel && { use_parallel_residual: true };
    return { ...rest, layer_norm_eps: rms_norm_eps, ...blocks };
  },
  gemma2: (keys, prefix, config) => ({
    ...gemma(keys, prefix, config, { period: 2, scaledByHidden: 46 }),
    sliding_window: keys.number(`${prefix}attention.sliding_window`) ?? 4096,
    attn_logit_softcapping: keys.number(`${prefix}attn_logit_softcapping`) ?? 50,
    final_logit_softcapping: keys.number(`${prefix}final_logit_softcapping`) ?? 30,
  }),
  gemma3_text(keys, prefix, config) {
    const { rope_parameters, ...rest } = gemma(keys, prefix, config, {
      period: 6,
      scaledByHidden: 62,
    });
    const local = keys.number(`${prefix}rope.freq_base_swa`) ?? BASE;
    return {
      ...rest,
      sliding_window: keys.needed(`${prefix}attention.sliding_window`),
      rope_local_base_freq: local,
      rope_parameters: {
        full_attention: rope_parameters,
        sliding_attention: { rope_type: "default", rope_theta: local },
      },
    };
  },
  gpt2: (_, __, config) => ({
    model_type: "gpt2",
    vocab_size: config["vocab_size"],
    n_embd: config["hidden_size"],
    n_inner: config["intermediate_size"],
    n_layer: config["num_hidden_layers"],
    n_head: config["num_attention_heads"],
    n_positions: config["max_position_embeddings"],
    layer_norm_epsilon: config["rms_norm_eps"],
    tie_word_embeddings: config["tie_word_embeddings"],
    ...tokensOf(config),
  }),
  gpt_neox(keys, prefix, config) {
    const { head_dim } = config as { head_dim: number };
    const turned = keys.number(`${prefix}rope.dimension_count`) ?? head_dim;
    const rotary_emb_base = keys.number(`${prefix}${ROPE}`) ?? BASE;
    const rotary_pct = turned / head_dim;
    return {
      model_type: "gpt_neox",
      vocab_size: config["vocab_size"],
      hidden_size: config["hidden_size"],
      intermediate_size: config["intermediate_size"],
      num_hidden_layers: config["num_hidden_layers"],
      num_attention_heads: config["num_attention_heads"],
      max_position_embeddings: config["max_position_embeddings"],
      layer_norm_eps: config["rms_norm_eps"],
      tie_word_embeddings: config["tie_word_embeddings"],
      rotary_pct,
      rotary_emb_base,
      rope_parameters: {
        rope_theta: rotary_emb_base,
        partial_rotary_factor: rotary_pct,
        ...scaling(keys, prefix, config["max_position_embeddings"]),
      },
      use_parallel_residual: keys.flag(`${prefix}use_parallel_residual`) ?? true,
      ...tokensOf(config),
    };
  },
};

const tokensOf = ({ bos_token_id, eos_token_id, pad_token_id }: Fields): Fields => ({
  ...(bos_token_id !== undefined && { bos_token_id }),
  ...(eos_token_id !== undefined && { eos_token_id }),
  pad_token_id,
});
