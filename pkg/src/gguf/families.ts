/**
 * How each model family lies in a GGUF file: the keys and layouts of llama.cpp's `convert_hf_to_gguf.py`. Its names
 * are the core's, in `names.ts`. A family that Llama's decoder covers needs no more.
 */

import type { ModelConfig } from "../model-config.js";
import { invalid, show } from "../options.js";
import { CHANGES } from "./changes.js";
import { type Change, expectField, type Family, type GgufNames, type Rules } from "./family.js";
import type { Metadata } from "./format.js";
import { GEMMA_2, GEMMA_3 } from "./gemma.js";
import { GPT_2, GPT_NEOX, STABLELM } from "./gpt.js";
import { GRANITE_FACTORS, readGranite } from "./granite.js";
import { GGUF_NAMES } from "./names.js";
import { readDecoder, readPartlyRotated } from "./read-decoder.js";
import { refuseScaling, ropeOf, ropeTensors, writeRope } from "./rope.js";

/** Architectures whose divisors of angles llama.cpp reads. */
const DIVIDED: ReadonlySet<string> = new Set(["llama", "granite"]);

/** A decoder as Llama began it, which is described by its names alone. */
const DECODER: Rules = {
  write(metadata, config) {
    const { architecture } = namesOf(config);
    if (!DIVIDED.has(architecture)) refuseScaling(architecture, config);
    writeRope(metadata, architecture, config);
  },
  extra: ropeTensors,
  read: readDecoder,
};

/** llama.cpp has no window. Within it both are the same. */
const withinWindow = ({ max_position_embeddings, sliding_window }: ModelConfig) =>
  Math.min(max_position_embeddings as number, sliding_window ?? Number.POSITIVE_INFINITY);

/** Families with rules of their own. */
const RULES: { readonly [type: string]: Rules } = {
  // llama.cpp has no architecture of its own for it.
  mistral: { ...DECODER, positions: withinWindow },
  phi3: {
    ...DECODER,
    write(metadata, config) {
      const turned = (config.head_dim as number) * (config.partial_rotary_factor as number);
      DECODER.write(metadata, { ...config, head_dim: Math.floor(turned) });
      // 0 where there is none, as llama.cpp's converter says it.
      metadata.u32("phi3.attention.sliding_window", config.sliding_window ?? 0);
      if (ropeOf(config).rope_type !== "default") return;
      // A config has the field beside longrope alone; this is what transformers then takes.
      metadata.u32("phi3.rope.scaling.original_context_length", 4096);
    },
    positions: withinWindow,
    read: (keys, prefix, config) => ({
      ...readPartlyRotated(keys, prefix, config),
      sliding_window: keys.number(`${prefix}attention.sliding_window`) || null,
    }),
  },
  granite: {
    ...DECODER,
    write(metadata, config) {
      DECODER.write(metadata, config);
      for (const [key, field] of Object.entries(GRANITE_FACTORS)) {
        metadata.f32(`granite.${key}`, config[field] as number);
      }
    },
    read: readGranite,
  },
  stablelm: STABLELM,
  gemma2: GEMMA_2,
  gemma3_text: GEMMA_3,
  gpt2: GPT_2,
  gpt_neox: GPT_NEOX,
};

const namesOf = ({ model_type }: ModelConfig) => GGUF_NAMES[model_type as string] as GgufNames;

/** How a family by `model_type` is written and read. */
export const rulesOf = (type: string): Rules =>
  Object.hasOwn(RULES, type) ? (RULES[type] as Rules) : DECODER;

/** The family of a config. */
export function familyOf({ model_type: type }: ModelConfig): Family {
  if (Object.hasOwn(GGUF_NAMES, type as string)) {
    return { ...(GGUF_NAMES[type as string] as GgufNames), ...rulesOf(type as string) };
  }
  const ours = type === "tinyloom" || type === "gpt_neo";
  const unknown = ours ? "llama.cpp does not know it, and " : "";
  throw invalid(
    `save: there is no GGUF of model_type ${show(type)}: ${unknown}tinyloom writes it of ` +
      `${Object.keys(GGUF_NAMES).join(", ")}; save with format: "safetensors"`,
  );
}

/** Writes the keys of a family, and refuses what llama.cpp computes otherwise. */
export function writeFamily(metadata: Metadata, family: Family, config: ModelConfig): void {
  writeSizes(metadata, family, config);
  for (const [field, allowed] of Object.entries(family.expected)) {
    expectField(config, field, allowed);
  }
  family.write(metadata, config);
}

/** A parameter's name in the file, and what is changed of it. */
export function placed(family: Family, name: string): { name: string; change?: Change } {
  const [, layer, module, kind] =
    /^(?:[a-z_]+\.)?(?:(?:layers|h)\.(\d+)\.)?(.+?)\.(weight|bias)$/.exec(name) ?? [];
  const own = module !== undefined && family.modules[module];
  if (!own) {
    throw invalid(`save: GGUF has no name for ${name} of the architecture ${family.architecture}`);
  }
  const named = family.changes[module];
  const change = named && CHANGES[named];
  const block = layer === undefined ? "" : `blk.${layer}.`;
  return { name: `${block}${own}.${kind}`, ...(change && { change }) };
}

/** Writes the keys of every family. */
function writeSizes(metadata: Metadata, family: Family, config: ModelConfig): void {
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
