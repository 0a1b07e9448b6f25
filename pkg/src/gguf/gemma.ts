/** What files of Gemma 2 and 3 have of their own. */

import type { ModelConfig } from "../model-config.js";
import type { RopeParameters } from "../rope-parameters.js";
import { expectField, type Fields, type Rules, refusedField } from "./family.js";
import type { Metadata } from "./format.js";
import type { Keys } from "./metadata.js";
import { readDecoder } from "./read-decoder.js";
import { refuseScaling, writeRope } from "./rope.js";

/** What llama.cpp knows without a key. */
interface Usual {
  /** One layer in this many has no window. */
  readonly period: number;
  /** Layers of the model whose scores are divided by √(hidden_size / heads) instead of √head_dim. */
  readonly scaledByHidden: number;
}

const USUAL_2: Usual = { period: 2, scaledByHidden: 46 };
const USUAL_3: Usual = { period: 6, scaledByHidden: 62 };

export const GEMMA_2: Rules = {
  write(metadata, config) {
    for (const field of ["attn_logit_softcapping", "final_logit_softcapping"]) {
      // llama.cpp has caps of its own where there is no key.
      const cap = config[field];
      if (typeof cap !== "number") throw refusedField(config, field, "as a number");
      metadata.f32(`gemma2.${field}`, cap);
    }
    writeWindow(metadata, "gemma2", config, USUAL_2);
    refuseScaling("gemma2", config);
    writeRope(metadata, "gemma2", config);
  },
  read: (keys, prefix, config) => ({
    ...readWindow(keys, prefix, config, USUAL_2),
    sliding_window: keys.number(`${prefix}attention.sliding_window`) ?? 4096,
    attn_logit_softcapping: keys.number(`${prefix}attn_logit_softcapping`) ?? 50,
    final_logit_softcapping: keys.number(`${prefix}final_logit_softcapping`) ?? 30,
  }),
};

/** Angles of layers with a window that llama.cpp takes where the file has no others. */
const LOCAL_BASE = 10_000;

export const GEMMA_3: Rules = {
  write(metadata, config) {
    writeWindow(metadata, "gemma3", config, USUAL_3);
    const ropes = config.rope_parameters as Required<RopeParameters>;
    const { full_attention: full, sliding_attention: sliding } = ropes;
    expectField({ rope_type: sliding.rope_type }, "rope_type", ["default", "dynamic"]);
    // llama.cpp would scale the layers with a window too, by others.
    expectField({ rope_type: full.rope_type }, "rope_type", ["default", "dynamic", "linear"]);
    writeRope(metadata, "gemma3", { ...config, rope_parameters: full });
    const base = config.rope_local_base_freq as number;
    if (base !== LOCAL_BASE) metadata.f32("gemma3.rope.freq_base_swa", base);
  },
  read(keys, prefix, config) {
    const { rope_parameters, ...rest } = readWindow(keys, prefix, config, USUAL_3);
    const local = keys.number(`${prefix}rope.freq_base_swa`) ?? LOCAL_BASE;
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
};

function writeWindow(
  metadata: Metadata,
  architecture: string,
  config: ModelConfig,
  { period, scaledByHidden }: Usual,
): void {
  const { num_hidden_layers: layers, hidden_size, num_attention_heads } = config;
  const byHidden = Math.floor((hidden_size as number) / (num_attention_heads as number));
  expectField(config, "query_pre_attn_scalar", [
    layers === scaledByHidden ? byHidden : config.head_dim,
  ]);
  metadata.u32(`${architecture}.attention.sliding_window`, config.sliding_window as number);
  const types = config.layer_types as readonly string[];
  const every = (count: number) =>
    types.every((type, at) => (type === "full_attention") === ((at + 1) % count === 0));
  if (every(period)) return;
  const other = types.map((_, at) => at + 2).find(every);
  if (other === undefined) {
    throw refusedField(config, "layer_types", "that repeat, with the last of a period in full");
  }
  metadata.u32(`${architecture}.attention.sliding_window_pattern`, other);
}

/** The fields of windows, and of the scale of scores. */
function readWindow(keys: Keys, prefix: string, config: Fields, usual: Usual): Fields {
  const { num_hidden_layers: layers, num_attention_heads: heads } = config as {
    num_hidden_layers: number;
    num_attention_heads: number;
  };
  const period = keys.number(`${prefix}attention.sliding_window_pattern`) ?? usual.period;
  const full = (layer: number) => (layer + 1) % period === 0;
  return {
    ...readDecoder(keys, prefix, config),
    query_pre_attn_scalar:
      layers === usual.scaledByHidden
        ? Math.floor((config["hidden_size"] as number) / heads)
        : config["head_dim"],
    layer_types: Array.from({ length: layers }, (_, layer) =>
      full(layer) ? "full_attention" : "sliding_attention",
    ),
  };
}
