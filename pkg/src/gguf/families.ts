/**
 * How each family of models lies in a GGUF file: the names, keys and layouts of llama.cpp's
 * `convert_hf_to_gguf.py`. A new family is an entry of {@link FAMILIES}.
 */

import type { ModelConfig } from "../model-config.js";
import { invalid, show } from "../options.js";
import { type Change, DECODER, expectField, type Family } from "./family.js";
import type { Metadata } from "./format.js";
import { GEMMA, GEMMA_2, GEMMA_3 } from "./gemma.js";
import { GPT_2, GPT_NEOX } from "./gpt.js";
import { refuseScaling, ropeFactors, writeRope } from "./rope.js";

/**
 * Pairs of the rotary embedding side by side: llama.cpp's Llama rotates elements 2i and 2i + 1 of a head,
 * transformers' i and i + head_dim / 2.
 */
const PAIRS: Change = {
  together: ({ head_dim }) => head_dim as number,
  change(values, columns) {
    const half = values.length / columns / 2;
    const changed = new Float32Array(values.length);
    for (let pair = 0; pair < half; pair++) {
      for (const side of [0, 1]) {
        const from = (side * half + pair) * columns;
        changed.set(values.subarray(from, from + columns), (2 * pair + side) * columns);
      }
    }
    return changed;
  },
};

const LLAMA: Family = {
  architecture: "llama",
  modules: DECODER,
  changes: { "self_attn.q_proj": PAIRS, "self_attn.k_proj": PAIRS },
  write(metadata, config) {
    expectSilu(config);
    writeRope(metadata, "llama", config);
  },
  extra(config) {
    const factors = ropeFactors(config);
    return factors ? { "rope_freqs.weight": factors } : {};
  },
};

/** llama.cpp has no architecture of its own for it, and no window. Within the window both are the same. */
const MISTRAL: Family = {
  ...LLAMA,
  positions: ({ max_position_embeddings, sliding_window }) =>
    Math.min(max_position_embeddings as number, sliding_window ?? Number.POSITIVE_INFINITY),
};

function qwen(architecture: string, more = {}): Family {
  return {
    architecture,
    modules: { ...DECODER, ...more },
    write(metadata, config) {
      expectSilu(config);
      refuseScaling(architecture, config);
      writeRope(metadata, architecture, config);
    },
  };
}

const FAMILIES: { readonly [type: string]: Family } = {
  llama: LLAMA,
  mistral: MISTRAL,
  qwen2: qwen("qwen2"),
  qwen3: qwen("qwen3", { "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm" }),
  gemma: GEMMA,
  gemma2: GEMMA_2,
  gemma3_text: GEMMA_3,
  gpt2: GPT_2,
  gpt_neox: GPT_NEOX,
};

/** llama.cpp's feed-forward blocks of these families know one activation, and their attention no soft-cap. */
function expectSilu(config: ModelConfig): void {
  expectField(config, "hidden_act", ["silu"]);
  expectField(config, "attn_logit_softcapping", [undefined]);
}

/** The family of a config. */
export function familyOf({ model_type }: ModelConfig): Family {
  const found = Object.hasOwn(FAMILIES, model_type as string) && FAMILIES[model_type as string];
  if (found) return found;
  const unknown = model_type === "gpt_neo" ? "llama.cpp does not know it, and " : "";
  throw invalid(
    `save: there is no GGUF of model_type ${show(model_type)}: ${unknown}tinyloom writes it of ` +
      `${Object.keys(FAMILIES).join(", ")}; save with format: "safetensors"`,
  );
}

/** A parameter's name in the file, and what is changed of it. */
export function placed(family: Family, name: string): { name: string; change?: Change } {
  const [, layer, module, kind] =
    /^(?:[a-z_]+\.)?(?:(?:layers|h)\.(\d+)\.)?(.+?)\.(weight|bias)$/.exec(name) ?? [];
  const own = module !== undefined && family.modules[module];
  if (!own) {
    throw invalid(`save: GGUF has no name for ${name} of the architecture ${family.architecture}`);
  }
  const change = family.changes?.[module];
  const block = layer === undefined ? "" : `blk.${layer}.`;
  return { name: `${block}${own}.${kind}`, ...(change && { change }) };
}

/** Writes the keys of every family. */
export function writeSizes(metadata: Metadata, family: Family, config: ModelConfig): void {
  const { architecture, epsilon = "layer_norm_rms_epsilon" } = family;
  for (const [key, value] of Object.entries({
    block_count: config.num_hidden_layers,
    context_length: family.positions?.(config) ?? config.max_position_embeddings,
    embedding_length: config.hidden_size,
    feed_forward_length: config.intermediate_size,
    "attention.head_count": config.num_attention_heads,
    "attention.head_count_kv": config.num_key_value_heads,
    "attention.key_length": config.head_dim,
    "attention.value_length": config.head_dim,
    vocab_size: config.vocab_size,
  })) {
    metadata.u32(`${architecture}.${key}`, value as number);
  }
  metadata.f32(`${architecture}.attention.${epsilon}`, config.rms_norm_eps as number);
}
