/** The rotary embedding as llama.cpp reads it. */

import type { ModelConfig } from "../model-config.js";
import { invalid, show } from "../options.js";
import type { RopeParameters } from "../rope-parameters.js";
import type { Metadata } from "./format.js";

/** The resolved scaling of a model's config. */
export const ropeOf = ({ rope_parameters }: ModelConfig) =>
  (rope_parameters ?? {}) as RopeParameters & { readonly rope_type: string };

/**
 * Writes base and scaling.
 *
 * @param architecture - the prefix of the keys.
 */
export function writeRope(metadata: Metadata, architecture: string, config: ModelConfig): void {
  const rope = ropeOf(config);
  const prefix = `${architecture}.rope`;
  metadata.u32(`${prefix}.dimension_count`, config.head_dim as number);
  metadata.f32(`${prefix}.freq_base`, config.rope_theta as number);
  const type = rope.rope_type;
  if (type === "longrope") writeLongRope(metadata, architecture, rope);
  // "dynamic" changes nothing within the model's positions.
  if (type !== "linear" && type !== "yarn") return;
  const factor = rope.factor as number;
  metadata.string(`${prefix}.scaling.type`, type);
  metadata.f32(`${prefix}.scaling.factor`, factor);
  if (type === "linear") return;
  if (rope.truncate === false) {
    throw invalid(
      "save: llama.cpp rounds the pairs between which YaRN changes over, and rope_parameters.truncate is false; " +
        'save with format: "safetensors"',
    );
  }
  metadata.u32(
    `${prefix}.scaling.original_context_length`,
    rope.original_max_position_embeddings as number,
  );
  metadata.f32(`${prefix}.scaling.yarn_beta_fast`, rope.beta_fast as number);
  metadata.f32(`${prefix}.scaling.yarn_beta_slow`, rope.beta_slow as number);
  // llama.cpp multiplies the usual factor of cosines and sines by this one.
  const usual = factor <= 1 ? 1 : 0.1 * Math.log(factor) + 1;
  const more = (rope.attention_factor as number) / usual;
  if (Math.abs(more - 1) > 1e-6) metadata.f32(`${prefix}.scaling.attn_factor`, more);
}

/** llama.cpp's converter notes no type of a Phi-3; elsewhere llama.cpp looks for the factors by it. */
function writeLongRope(metadata: Metadata, architecture: string, rope: RopeParameters): void {
  if (architecture !== "phi3" && architecture !== "llama")
    throw noScaling("longrope", architecture);
  const prefix = `${architecture}.rope.scaling`;
  if (architecture !== "phi3") metadata.string(`${prefix}.type`, "longrope");
  const original = rope.original_max_position_embeddings as number;
  metadata.u32(`${prefix}.original_context_length`, original);
  metadata.f32(`${prefix}.attn_factor`, rope.attention_factor as number);
}

/** The tensors that llama.cpp divides angles by. */
export function ropeTensors(config: ModelConfig): { readonly [name: string]: Float32Array } {
  const { rope_type, long_factor = [], short_factor = [] } = ropeOf(config);
  if (rope_type === "longrope") {
    return {
      [LONG_FACTORS]: Float32Array.from(long_factor),
      [SHORT_FACTORS]: Float32Array.from(short_factor),
    };
  }
  const factors = ropeFactors(config);
  return factors ? { [ROPE_FREQS]: factors } : {};
}

export const ROPE_FREQS = "rope_freqs.weight";
/** llama.cpp takes the first where its context is longer than the original one. */
export const LONG_FACTORS = "rope_factors_long.weight";
export const SHORT_FACTORS = "rope_factors_short.weight";

/** What llama.cpp divides the angle of each pair by, for Llama 3's scaling; undefined for others. */
function ropeFactors(config: ModelConfig): Float32Array | undefined {
  const rope = ropeOf(config);
  if (rope.rope_type !== "llama3") return undefined;
  return llama3Factors(rope, config.rope_theta as number, config.head_dim as number);
}

/** The same of the numbers of the scaling. */
export function llama3Factors(rope: RopeParameters, theta: number, dim: number): Float32Array {
  const [factor, low, high, original] = [
    rope.factor,
    rope.low_freq_factor,
    rope.high_freq_factor,
    rope.original_max_position_embeddings,
  ] as [number, number, number, number];
  return Float32Array.from({ length: dim / 2 }, (_, pair) => {
    // Turns within the first training's positions, between the two bounds.
    const turns = (original * theta ** ((-2 * pair) / dim)) / (2 * Math.PI);
    const share = Math.min(1, Math.max(0, (turns - low) / (high - low)));
    return 1 / (share + (1 - share) / factor);
  });
}

/** Refuses a scaling that llama.cpp has for other architectures alone. */
export function refuseScaling(architecture: string, config: ModelConfig): void {
  const type = ropeOf(config).rope_type;
  if (type === "llama3") throw noScaling(type, architecture);
}

const noScaling = (type: string, architecture: string) =>
  invalid(
    `save: llama.cpp has no scaling ${show(type)} of RoPE for ${architecture}; save with format: "safetensors"`,
  );
