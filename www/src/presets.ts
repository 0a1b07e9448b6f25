import type { ModelConfig } from "tinyloom";
import { presets } from "./sizes.mjs";

export { defaultSeed, openSettings, presets } from "./sizes.mjs";

export type PresetName = keyof typeof presets;

export interface RunSettings {
  config: ModelConfig;
  sequenceLength: number;
  tokensPerStep: number;
  learningRate: number;
  /** Absent: a tenth of the learning rate. */
  minLearningRate?: number;
  steps: number;
  /** Absent: f32. */
  precision?: "f32" | "mixed";
  temperature: number;
  seed: number;
}

/** What tells one model's shape from another. */
const SHAPE = ["hidden_size", "num_attention_heads", "num_hidden_layers"] as const;
/** The vocabulary where letters are the tokens. */
export const LETTERS = 256;

export function isPresetName(name: string): name is PresetName {
  return Object.hasOwn(presets, name);
}

/** The size whose model has the shape of these settings; of several the one with their learning rate. */
export function sizeOf({ config, learningRate }: RunSettings): PresetName | undefined {
  const names = Object.keys(presets) as PresetName[];
  const { vocab_size: words = LETTERS } = config;
  const same = names.filter((name) => {
    const size = presets[name].config;
    return (
      SHAPE.every((one) => size[one] === config[one]) &&
      // Letters are 256 tokens in each size, and a text may have groups of letters for fewer than a size has.
      words >= LETTERS &&
      words <= size.vocab_size
    );
  });
  return same.find((name) => presets[name].learningRate === learningRate) ?? same[0];
}

/** Why a run of these settings fails, where their size was made for that. */
export function failureOf(settings: RunSettings): string | undefined {
  const size = sizeOf(settings);
  const preset = size && presets[size];
  return preset && "fails" in preset ? preset.fails : undefined;
}

/** The size that fits an adapter: small where the CPU computes. */
export function presetFor(capabilities: { readonly software: boolean }): PresetName {
  return capabilities.software ? "story-small" : "story";
}
