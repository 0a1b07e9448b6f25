/** Fields that many families have of a file's metadata. */

import { show } from "../options.js";
import type { Fields } from "./family.js";
import { type Keys, refused } from "./metadata.js";

/** The key of the base of angles. */
export const ROPE = "rope.freq_base";
/** What llama.cpp takes where a file has no base of angles. */
export const BASE = 10_000;

/** The rotary embedding, without its base. */
export function readScaling(keys: Keys, prefix: string, positions: unknown): Fields {
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
export function readDecoder(keys: Keys, prefix: string, config: Fields): Fields {
  const turned = keys.number(`${prefix}rope.dimension_count`) ?? config["head_dim"];
  if (turned !== config["head_dim"]) {
    throw refused(
      `${keys.place}: ${prefix}rope.dimension_count is ${turned}, and a head has ${config["head_dim"]} elements; of this ` +
        "family tinyloom rotates whole heads",
    );
  }
  const rope_theta = keys.number(`${prefix}${ROPE}`) ?? BASE;
  const scaled = readScaling(keys, prefix, config["max_position_embeddings"]);
  return { ...config, rope_theta, rope_parameters: { rope_theta, ...scaled } };
}

/** A decoder that rotates the beginning of each head. */
export function readPartlyRotated(keys: Keys, prefix: string, config: Fields): Fields {
  const head = config["head_dim"] as number;
  const partial_rotary_factor = (keys.number(`${prefix}rope.dimension_count`) ?? head) / head;
  const rope_theta = keys.number(`${prefix}${ROPE}`) ?? BASE;
  const scaled = readScaling(keys, prefix, config["max_position_embeddings"]);
  const rope_parameters = { rope_theta, partial_rotary_factor, ...scaled };
  return { ...config, partial_rotary_factor, rope_theta, rope_parameters };
}

/** Ids of special tokens, for a config that has none of the other fields. */
export const tokensOf = ({ bos_token_id, eos_token_id, pad_token_id }: Fields): Fields => ({
  ...(bos_token_id !== undefined && { bos_token_id }),
  ...(eos_token_id !== undefined && { eos_token_id }),
  pad_token_id,
});
