// TensorFlow.js: a Llama-shaped model in its public API, and its own Adam.
import "@tensorflow/tfjs-backend-webgpu";
import * as tf from "@tensorflow/tfjs-core";
import "@tensorflow/tfjs-core/dist/register_all_gradients";
import { DEVIATION, EPSILON, makeWeights, rotaryAngles, sizes } from "./llama.mjs";

/** What a masked score is lowered by. */
const MASKED = -1e9;

async function start() {
  if (!(await tf.setBackend("webgpu"))) throw new Error("the backend webgpu did not start");
}

function rmsNorm(x, weight) {
  const meanSquare = tf.mean(tf.square(x), -1, true);
  return tf.mul(tf.mul(x, tf.rsqrt(tf.add(meanSquare, EPSILON))), weight);
}

/** Rotates pairs half a head apart; x is tokens × heads × width. */
function rotate(x, { cosines, sines }) {
  const [low, high] = tf.split(x, 2, -1);
  const rotated = [
    tf.sub(tf.mul(low, cosines), tf.mul(high, sines)),
    tf.add(tf.mul(high, cosines), tf.mul(low, sines)),
  ];
  return tf.concat(rotated, -1);
}

function attend(x, layer, { heads, kvHeads, width }, { angles, mask }) {
  const tokens = x.shape[0];
  const project = (weight, count) => tf.reshape(tf.matMul(x, weight), [tokens, count, width]);
  const byHead = (split) => tf.transpose(split, [1, 0, 2]);
  // The query heads of a key-value head are one taller matrix, so that keys need no copies.
  const grouped = [kvHeads, (heads / kvHeads) * tokens, width];
  const query = tf.reshape(byHead(rotate(project(layer.query, heads), angles)), grouped);
  const key = byHead(rotate(project(layer.key, kvHeads), angles));
  const value = byHead(project(layer.value, kvHeads));
  const scores = tf.reshape(tf.matMul(query, key, false, true), [heads, tokens, tokens]);
  const weights = tf.softmax(tf.add(tf.mul(scores, 1 / Math.sqrt(width)), mask));
  const mixed = tf.matMul(tf.reshape(weights, [kvHeads, grouped[1], tokens]), value);
  const joined = tf.transpose(tf.reshape(mixed, [heads, tokens, width]), [1, 0, 2]);
  return tf.matMul(tf.reshape(joined, [tokens, heads * width]), layer.output);
}

function feedForward(x, { gate, up, down }) {
  const gated = tf.matMul(x, gate);
  const activated = tf.mul(gated, tf.sigmoid(gated));
  return tf.matMul(tf.mul(activated, tf.matMul(x, up)), down);
}

function meanLoss(weights, tokens, targets, shape, constants) {
  let x = tf.gather(weights.embedding, tokens);
  for (const layer of weights.layers) {
    x = tf.add(x, attend(rmsNorm(x, layer.attentionNorm), layer, shape, constants));
    x = tf.add(x, feedForward(rmsNorm(x, layer.feedForwardNorm), layer));
  }
  const logits = tf.matMul(rmsNorm(x, weights.norm), weights.embedding, false, true);
  return tf.losses.softmaxCrossEntropy(tf.oneHot(targets, shape.vocabulary), logits);
}

/** A training step of one batch, as a function that gives the loss. */
export async function makeStep(config, length, learningRate) {
  await start();
  const shape = sizes(config);
  const { cosines, sines } = rotaryAngles(length, shape.width);
  const table = (values) => tf.tensor3d(values, [length, 1, shape.width / 2]);
  const masked = Float32Array.from({ length: length * length }, (_, i) =>
    i % length > Math.floor(i / length) ? MASKED : 0,
  );
  const constants = {
    angles: { cosines: table(cosines), sines: table(sines) },
    mask: tf.tensor2d(masked, [length, length]),
  };
  const normal = (size) => tf.variable(tf.randomNormal(size, 0, DEVIATION));
  const weights = makeWeights(config, normal, (count) => tf.variable(tf.ones([count])));
  const optimizer = tf.train.adam(learningRate);
  return async (batch) => {
    const [tokens, targets] = [batch.tokens, batch.targets].map((ids) =>
      tf.tensor1d(Int32Array.from(ids), "int32"),
    );
    const cost = optimizer.minimize(
      () => meanLoss(weights, tokens, targets, shape, constants),
      true,
    );
    const [loss] = await cost.data();
    tf.dispose([cost, tokens, targets]);
    return loss;
  };
}

/** A function that multiplies two square matrices and reads one row of the result back. */
export async function makeProduct(n) {
  await start();
  const [left, right] = [1, 2].map((seed) => tf.randomNormal([n, n], 0, 1, "float32", seed));
  return async () => {
    const row = tf.tidy(() => tf.slice(tf.matMul(left, right), 0, 1));
    await row.data();
    row.dispose();
  };
}
