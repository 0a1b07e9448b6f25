/** Models that the editor's sliders say. */
import type { ModelConfig } from "tinyloom";
import { shapeOf } from "./shape.ts";

/** What each slider chooses from. */
export const CHOICES = {
  layers: [1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24],
  width: [32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048],
  heads: [1, 2, 4, 8, 16],
  context: [32, 64, 128, 256, 512, 1024, 2048, 4096],
  // The stories have groups of letters for 413 tokens.
  vocabulary: [256, 384, 512, 1024, 2048, 4096, 8192, 16384, 32768],
};
export type Slider = keyof typeof CHOICES;
export const SLIDERS = Object.keys(CHOICES) as Slider[];

export type Values = { readonly [slider in Slider]: number };

/** The widest head that the package takes, and what a head's width is a multiple of. */
const [WIDEST, MULTIPLE] = [256, 4];

/** Numbers of heads that a model of this width can have. */
export const fittingHeads = (width: number): number[] =>
  CHOICES.heads.filter((heads) => width / heads <= WIDEST && (width / heads) % MULTIPLE === 0);

/** The model of these values, with the names of Hugging Face. */
export function configOf({ layers, width, heads, context, vocabulary }: Values): ModelConfig {
  return {
    vocab_size: vocabulary,
    hidden_size: width,
    intermediate_size: 3 * width,
    num_hidden_layers: layers,
    num_attention_heads: heads,
    num_key_value_heads: Math.max(1, heads / 2),
    max_position_embeddings: context,
    initializer_range: 0.05,
    tie_word_embeddings: true,
  };
}

/** The index of the nearest choice that is not less. */
export function nearest(slider: Slider, wanted: number): number {
  const choices = CHOICES[slider];
  const at = choices.findIndex((choice) => choice >= wanted);
  return at < 0 ? choices.length - 1 : at;
}

/** The nearest values to a model. */
export function valuesOf(config: ModelConfig): Values {
  const { layers = 2, width = 64, heads = 4, positions = 64 } = shapeOf(config);
  const wanted = { layers, width, heads, context: positions, vocabulary: config.vocab_size ?? 256 };
  const entries = SLIDERS.map((slider) => [
    slider,
    CHOICES[slider][nearest(slider, wanted[slider])],
  ]);
  return Object.fromEntries(entries) as Values;
}

/** Whether the sliders can say this model. */
export function isOwn(config: ModelConfig): boolean {
  const own = configOf(valuesOf(config));
  return (Object.keys(own) as (keyof ModelConfig)[]).every((field) => own[field] === config[field]);
}
