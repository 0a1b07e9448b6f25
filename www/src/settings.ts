import type { Capabilities, ModelConfig } from "tinyloom";
import { generateStories } from "../stories/generate.ts";
import { storyPrompt } from "../stories/preset.ts";
import {
  defaultSeed,
  isPresetName,
  openSettings,
  presetFor,
  presets,
  type RunSettings,
} from "./presets.ts";

export type { RunSettings } from "./presets.ts";

/** What the caller of a run chose; the rest follows from the adapter and the text. */
export interface RunChoices {
  /** A preset's name, or a config with Hugging Face's names. */
  config?: string | ModelConfig | undefined;
  sequenceLength?: number | undefined;
  tokensPerStep?: number | undefined;
  learningRate?: number | undefined;
  steps?: number | undefined;
  precision?: "f32" | "mixed" | undefined;
  seed?: number | undefined;
}

/** Fills in the choices left open. A name that is no preset gives undefined. */
export function resolveSettings(
  choices: RunChoices,
  capabilities: Capabilities,
): RunSettings | undefined {
  const chosen = choices.config ?? presetFor(capabilities);
  if (typeof chosen === "string" && !isPresetName(chosen)) return undefined;
  const { config, ...rest }: Omit<RunSettings, "seed"> =
    typeof chosen === "string" ? presets[chosen] : { config: chosen, ...openSettings };
  const sequenceLength = choices.sequenceLength ?? rest.sequenceLength;
  const settings: RunSettings = {
    sequenceLength,
    tokensPerStep: choices.tokensPerStep ?? Math.max(rest.tokensPerStep, sequenceLength),
    learningRate: choices.learningRate ?? rest.learningRate,
    steps: choices.steps ?? rest.steps,
    temperature: rest.temperature,
    seed: choices.seed ?? defaultSeed,
    config: { ...byteConfig(config, sequenceLength) },
  };
  if (choices.precision !== undefined) settings.precision = choices.precision;
  if (choices.learningRate === undefined && rest.minLearningRate !== undefined) {
    settings.minLearningRate = rest.minLearningRate;
  }
  return settings;
}

/** A config for a model of bytes: the vocabulary and the longest document follow the data unless they are given. */
function byteConfig(config: ModelConfig, sequenceLength: number): ModelConfig {
  const field = config.model_type === "gpt2" ? "n_positions" : "max_position_embeddings";
  const positions = Math.max(config[field] ?? sequenceLength, sequenceLength);
  return { vocab_size: 256, ...config, [field]: positions };
}

/** Share of a text that is kept for validation: its last part. */
export const validationFraction = 0.1;

/** Bytes of the built-in text: enough that no document is seen twice, unless the run is very long. */
export function storyBytes({ steps, tokensPerStep }: RunSettings): number {
  const wanted = (steps * tokensPerStep) / (1 - validationFraction);
  return Math.ceil(Math.min(Math.max(wanted * 1.05, 280_000), 4_000_000));
}

/** The built-in text. */
export const storiesFor = (settings: RunSettings): string =>
  generateStories(settings.seed, storyBytes(settings));

/** What samples continue: a sentence of the stories, or for another text a new line. */
export function defaultPrompt(stories: boolean): string {
  return stories ? storyPrompt : "\n";
}
