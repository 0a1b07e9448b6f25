// Attention in plain loops of doubles, for what the PyTorch fixtures leave out; and random numbers.
import { numbers } from "../../random.mjs";

/** Numbers like a normal distribution's, always the same for a seed. */
export function noise(seed, count) {
  const next = numbers(seed * 2_654_435_761 + 1);
  return Float32Array.from({ length: count }, () => 2 * (next() + next() + next()) - 3);
}

/** Whether the query sees the key, of the options that are intervals; `tree` and `boolean` by functions. */
function sees(options, { queryRows, keyRows }, item, head, query, key) {
  const { causal, window, documents, keyLengths, boolean } = options;
  const offset = [options.queryOffset].flat();
  const own = query + (offset[item] ?? offset[0] ?? keyRows - queryRows);
  const starts = documents && (typeof documents[0] === "number" ? documents : documents[item]);
  return (
    !(causal && key > own) &&
    !(window && (key <= own - window || key >= own + window)) &&
    !(starts && starts[query] !== starts[key]) &&
    !(keyLengths && key >= keyLengths[item]) &&
    (boolean?.(item, head, query, key) ?? true)
  );
}

/**
 * Output and logsumexp.
 *
 * @param sizes - { batch, heads, kvHeads, queryRows, keyRows, headDim }.
 * @param options - of the API, with `boolean` and `additive` as functions of item, head, query and key.
 */
export function attend(query, key, value, sizes, options = {}) {
  const { batch, heads, kvHeads, queryRows, keyRows, headDim } = sizes;
  const scale = options.scale ?? headDim ** -0.5;
  const output = new Float64Array(query.length);
  const logsumexp = new Float64Array(batch * heads * queryRows).fill(-1e30);
  for (let row = 0; row < logsumexp.length; row++) {
    const [i, h, b] = [
      row % queryRows,
      Math.floor(row / queryRows) % heads,
      Math.floor(row / queryRows / heads),
    ];
    const base = (b * kvHeads + Math.floor(h / (heads / kvHeads))) * keyRows;
    const scores = [];
    for (let j = 0; j < keyRows; j++) {
      if (!sees(options, sizes, b, h, i, j)) continue;
      let score = 0;
      for (let d = 0; d < headDim; d++)
        score += query[row * headDim + d] * key[(base + j) * headDim + d];
      score *= scale;
      if (options.softCap) score = options.softCap * Math.tanh(score / options.softCap);
      scores.push([j, score + (options.additive?.(b, h, i, j) ?? 0)]);
    }
    const largest = Math.max(...scores.map(([, score]) => score));
    if (!(largest > -1e29)) continue;
    const sum = scores.reduce((total, [, score]) => total + Math.exp(score - largest), 0);
    logsumexp[row] = largest + Math.log(sum);
    for (const [j, score] of scores) {
      const weight = Math.exp(score - largest) / sum;
      for (let d = 0; d < headDim; d++)
        output[row * headDim + d] += weight * value[(base + j) * headDim + d];
    }
  }
  return { output, logsumexp };
}

const length = (a) => Math.sqrt(a.reduce((sum, x) => sum + x * x, 0));

/** Distance in L2, relative to the expected array's length. */
export function apart(got, expected) {
  return length(Float64Array.from(got, (x, i) => x - expected[i])) / length(expected);
}
