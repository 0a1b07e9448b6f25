// What the models written here for jax-js and for TensorFlow.js share: shapes and constants alone.

/** Added to the mean square in RMSNorm. */
export const EPSILON = 1e-5;
/** Standard deviation of the initial weights. */
export const DEVIATION = 0.02;
/** Base of the rotary wavelengths. */
const THETA = 10_000;

/** The sizes of a configuration by the names used here. */
export function sizes(config) {
  const heads = config.num_attention_heads;
  return {
    layers: config.num_hidden_layers,
    hidden: config.hidden_size,
    heads,
    kvHeads: config.num_key_value_heads,
    width: config.hidden_size / heads,
    intermediate: config.intermediate_size,
    vocabulary: config.vocab_size,
  };
}

/**
 * The weights as a tree; matrices are inputs × outputs, and the embedding is the head too.
 *
 * @param normal - draws a matrix of a shape; @param ones - makes a vector of a length.
 */
export function makeWeights(config, normal, ones) {
  const { layers, hidden, heads, kvHeads, width, intermediate, vocabulary } = sizes(config);
  const makeLayer = () => ({
    attentionNorm: ones(hidden),
    query: normal([hidden, heads * width]),
    key: normal([hidden, kvHeads * width]),
    value: normal([hidden, kvHeads * width]),
    output: normal([heads * width, hidden]),
    feedForwardNorm: ones(hidden),
    gate: normal([hidden, intermediate]),
    up: normal([hidden, intermediate]),
    down: normal([intermediate, hidden]),
  });
  return {
    embedding: normal([vocabulary, hidden]),
    layers: Array.from({ length: layers }, makeLayer),
    norm: ones(hidden),
  };
}

/** Cosines and sines of the rotary angles, each tokens × half a head's width. */
export function rotaryAngles(tokens, width) {
  const half = width / 2;
  const angles = Float64Array.from(
    { length: tokens * half },
    (_, i) => Math.floor(i / half) * THETA ** (-(i % half) / half),
  );
  return {
    cosines: Float32Array.from(angles, Math.cos),
    sines: Float32Array.from(angles, Math.sin),
  };
}
