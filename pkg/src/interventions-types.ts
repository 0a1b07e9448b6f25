/** What a call may change of a model's numbers on their way to the logits. */

/** Numbers of a vector. They are copied. */
export type Vector = Float32Array | readonly number[];

/** Where an {@link Intervention} changes numbers. */
export type InterventionPlace =
  | {
      /**
       * `"residual"`: the residual stream after `layer` layers; 0 is the embedding, and after the last layer it is before
       * the final norm. `"attention"` and `"mlp"`: what the attention or the feed-forward block of the layer adds to it.
       */
      at: "residual" | "attention" | "mlp";
      layer: number;
    }
  | {
      /** What one head leaves for the output product of its layer's attention: `head_dim` numbers. */
      at: "head";
      layer: number;
      head: number;
    };

/** How an {@link Intervention} changes them. Vectors have the width of the place: `hidden_size`, or of a head `head_dim`. */
export type InterventionChange =
  | {
      /** Multiplies by this number; 0 turns off whatever is there. */
      scale: number;
    }
  | {
      /** Adds this vector, times `strength`: steering. */
      add: Vector;
      /** Default 1. */
      strength?: number;
    }
  | {
      /** Takes away what lies along this vector, whatever its length, times `strength`. */
      project: Vector;
      /** Default 1. */
      strength?: number;
    }
  | {
      /** Puts this vector in place of what is there, or as many vectors as there are `positions`: patching. */
      set: Vector;
    };

/**
 * A change of what a model computes, for one call. Of several at one place each sees what the one before left.
 *
 * @example
 * ```ts
 * const off = { at: "head", layer: 1, head: 2, scale: 0 };
 * const steered = { at: "residual", layer: 4, add: direction, strength: 6 };
 * const patched = { at: "residual", layer: 2, set: state, positions: [5] };
 * await model.logits(tokens, { interventions: [off, steered, patched] });
 * ```
 */
export type Intervention = InterventionPlace &
  InterventionChange & {
    /**
     * Positions of the text: a list, or all from one on up to another, which is not among them. Default: all. What a text
     * does not have is refused; of one that is generated, what its model does not have.
     */
    positions?: readonly number[] | { from?: number; to?: number };
  };

/** An option of calls that compute a text. */
export interface Intervened {
  /**
   * What is changed on the way to the logits, in this order. A call may have 1,024, where each run of positions counts,
   * and of a `set` with a vector for each position each vector. What a call reads of a text serves no call with others.
   */
  interventions?: readonly Intervention[];
}
