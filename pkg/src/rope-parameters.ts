/** How RoPE is scaled, as a config says it. */

/** Scaling of the rotary embedding. Which fields a type needs is as in transformers. */
export interface RopeParameters {
  rope_type?: "default" | "linear" | "dynamic" | "llama3" | "yarn" | "longrope";
  rope_theta?: number;
  factor?: number;
  low_freq_factor?: number;
  high_freq_factor?: number;
  original_max_position_embeddings?: number;
  /** GPT-NeoX turns this share of each head. */
  partial_rotary_factor?: number;
  attention_factor?: number | null;
  beta_fast?: number | null;
  beta_slow?: number | null;
  truncate?: boolean;
  /** YaRN's factor on cosines and sines is that of the first of these divided by that of the second. */
  mscale?: number | null;
  mscale_all_dim?: number | null;
  /** LongRoPE divides the angle of each pair by these, and in texts beyond `original_max_position_embeddings` by others. */
  short_factor?: number[];
  long_factor?: number[];
  /** Gemma 3 has one object for its layers without a window and one for those with it. */
  full_attention?: RopeParameters;
  sliding_attention?: RopeParameters;
  [name: string]: unknown;
}
