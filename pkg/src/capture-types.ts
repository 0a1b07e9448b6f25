/** What `capture`, `lens` and `attribute` of a model take and give. */

import type { InferenceOptions, Scores } from "./model-types.js";
import type { LongOptions } from "./progress.js";

/** What {@link Model.capture} can read back, by its name: true asks for it. */
export interface CaptureKinds {
  /**
   * The residual stream after layers: 0 is the embedding, and `num_hidden_layers` what the final norm reads.
   * `positions × hidden_size` numbers of each.
   */
  residual?: boolean;
  /** How much each position attends to each: `heads × positions × positions` probabilities of each layer. */
  attention?: boolean;
  /** What attention adds to the residual stream: `positions × hidden_size`. */
  attentionOutput?: boolean;
  /** What the feed-forward block adds to it: `positions × hidden_size`. */
  mlp?: boolean;
  /** Queries, as their product gives them, before norms of heads and RoPE: `positions × heads × head_dim`. */
  query?: boolean;
  /** Keys, likewise: `positions × kv_heads × head_dim`. */
  key?: boolean;
  /** Values, likewise. */
  value?: boolean;
}

/** Options of {@link Model.capture}. At least one kind is asked for. */
export interface CaptureOptions extends InferenceOptions, CaptureKinds {
  /**
   * The layers; of `residual` `num_hidden_layers` may be one of them. Default: of each kind all that have it, which are the
   * keys of the result.
   */
  layers?: readonly number[];
}

/** By the number of a layer. */
export interface ByLayer {
  readonly [layer: number]: Float32Array;
}

/** What {@link Model.capture} gives: what was asked for, by layer. */
export type Captured<Asked = CaptureKinds> = { readonly [K in keyof CaptureKinds]?: ByLayer } & {
  readonly [K in keyof CaptureKinds & keyof Asked as Asked[K] extends true ? K : never]: ByLayer;
};

/** Options of {@link Model.lens}. `onProgress` counts tokens of each layer. */
export interface LensOptions extends InferenceOptions {
  /** Counted as `residual` of {@link CaptureOptions}. Default: all, from the embedding on. */
  layers?: readonly number[];
  /** How many of the likeliest ids come for each position, from 0 to 64. Default 5, or the vocabulary if that is smaller. */
  top?: number;
  /** The ids that log-probabilities are asked of, one for each token; 0xffffffff for none. Default: the next tokens. */
  targets?: Uint32Array | readonly number[];
}

/** What a model would say after a layer. */
export interface LensLayer extends Pick<Scores, "logprobs"> {
  readonly layer: number;
  /** The likeliest ids of each position, with their probabilities, as in {@link Scores}. */
  readonly top: NonNullable<Scores["top"]>;
}

/** Options of {@link Model.attribute}. */
export interface AttributeOptions
  extends LongOptions,
    Pick<InferenceOptions, "adapter" | "adapters"> {
  /** The token whose logit it is. */
  target: number;
  /** A token whose logit is taken from it. */
  against?: number;
  /** The position that gives the logit; default the last. */
  position?: number;
  /** Counted as `residual` of {@link CaptureOptions}. Default: all. */
  layers?: readonly number[];
}
