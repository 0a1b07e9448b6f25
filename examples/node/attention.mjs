// Attention and its gradients on tensors of your own, compared with plain JavaScript.
//
//   npm install tinyloom webgpu
//   node attention.mjs
import { Runtime } from "tinyloom";
import { attention } from "tinyloom/ops";
import { create } from "webgpu";

const [heads, tokens, headDim] = [2, 48, 16];
const shape = [1, heads, tokens, headDim];
const random = () =>
  Float32Array.from({ length: heads * tokens * headDim }, () => Math.random() - 0.5);
const [q, k, v] = [random(), random(), random()];

/** Causal attention in f64. */
function reference() {
  const output = new Float64Array(q.length);
  const dot = (a, i, b, j) => {
    let sum = 0;
    for (let d = 0; d < headDim; d++) sum += a[i * headDim + d] * b[j * headDim + d];
    return sum;
  };
  for (let row = 0; row < heads * tokens; row++) {
    const first = row - (row % tokens);
    const keys = Array.from({ length: row - first + 1 }, (_, i) => first + i);
    const weights = keys.map((key) => Math.exp(dot(q, row, k, key) / Math.sqrt(headDim)));
    const total = weights.reduce((a, b) => a + b, 0);
    keys.forEach((key, i) => {
      for (let d = 0; d < headDim; d++) {
        output[row * headDim + d] += (weights[i] / total) * v[key * headDim + d];
      }
    });
  }
  return output;
}

const runtime = await Runtime.create({ gpu: create([]) });
const [query, key, value] = [q, k, v].map((numbers) => runtime.tensor(numbers, shape));
const saved = await attention.forward(query, key, value, { causal: true });
const output = await saved.output.data();
const wanted = reference();
const apart = Math.max(...output.map((x, i) => Math.abs(x - wanted[i])));
console.log("largest difference of the outputs:", apart);
if (!(apart < 1e-5)) throw new Error("the outputs differ");

// A few steps of gradient descent on the values, towards an output of ones.
for (let step = 1; step <= 5; step++) {
  const { output: now, logsumexp } = await attention.forward(query, key, value, { causal: true });
  const errors = (await now.data()).map((x) => x - 1);
  const loss = errors.reduce((sum, x) => sum + x * x, 0) / errors.length;
  console.log(`step ${step}: loss ${loss.toFixed(4)}`);
  const dOutput = runtime.tensor(errors, shape);
  const options = { causal: true, output: now, logsumexp };
  const { dQuery, dKey, dValue } = await attention.backward(dOutput, query, key, value, options);
  const [numbers, gradient] = [await value.data(), await dValue.data()];
  await value.write(numbers.map((x, i) => x - 0.2 * gradient[i]));
  for (const tensor of [now, logsumexp, dOutput, dQuery, dKey, dValue]) tensor.free();
}
runtime.destroy();
