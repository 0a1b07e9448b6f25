import { hardwarePreset, type Preset, softwarePreset } from "../stories/preset.ts";

/** A model size to choose from. */
export interface NamedPreset extends Preset {
  label: string;
}

interface Shape {
  /** Layers, width, heads, heads of keys and values, feed-forward width, sequence length, vocabulary. */
  dimensions: readonly [number, number, number, number, number, number, number];
  tokensPerStep: number;
  learningRate: number;
}

/** A Llama-shaped model of the sizes that the project's speed is compared at. */
function llama(label: string, shape: Shape): NamedPreset {
  const [layers, width, heads, kvHeads, feedForward, length, vocabulary] = shape.dimensions;
  return {
    label,
    config: {
      vocab_size: vocabulary,
      hidden_size: width,
      intermediate_size: feedForward,
      num_hidden_layers: layers,
      num_attention_heads: heads,
      num_key_value_heads: kvHeads,
      max_position_embeddings: length,
      tie_word_embeddings: true,
    },
    sequenceLength: length,
    tokensPerStep: shape.tokensPerStep,
    learningRate: shape.learningRate,
    steps: 400,
    temperature: 0.8,
  };
}

export const presets = {
  "story-small": { label: "Pocket, 0.1 M weights: for CPUs", ...softwarePreset },
  story: { label: "Story, 0.8 M weights: for GPUs", ...hardwarePreset },
  tiny: llama("Tiny, 0.8 M weights", {
    dimensions: [4, 128, 4, 2, 384, 256, 256],
    tokensPerStep: 256,
    learningRate: 1e-3,
  }),
  mid: llama("Mid, 11 M weights", {
    dimensions: [6, 384, 6, 2, 1024, 256, 4096],
    tokensPerStep: 256,
    learningRate: 6e-4,
  }),
  seed: llama("Seed, 82 M weights", {
    dimensions: [12, 768, 12, 4, 2048, 512, 8192],
    tokensPerStep: 512,
    learningRate: 3e-4,
  }),
} as const satisfies Record<string, NamedPreset>;

export type PresetName = keyof typeof presets;

export function isPresetName(name: string): name is PresetName {
  return Object.hasOwn(presets, name);
}

/** The size that fits an adapter: small where the CPU computes. */
export function presetFor(capabilities: { readonly software: boolean }): PresetName {
  return capabilities.software ? "story-small" : "story";
}
