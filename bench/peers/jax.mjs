// jax-js: a Llama-shaped model and AdamW in its public API, one jitted function per step. An array
// passed to a function is used up, and `.ref` keeps it for one more use.
import {
  blockUntilReady,
  defaultDevice,
  init,
  jit,
  nn,
  numpy as np,
  random,
  tree,
  valueAndGrad,
} from "@jax-js/jax";
import { DEVIATION, EPSILON, makeWeights, rotaryAngles, sizes } from "./llama.mjs";

const BETA_1 = 0.9;
const BETA_2 = 0.95;
const ADAM_EPSILON = 1e-8;
const WEIGHT_DECAY = 0.1;

async function start() {
  if (!(await init("webgpu")).includes("webgpu"))
    throw new Error("the device webgpu did not start");
  defaultDevice("webgpu");
}

function rmsNorm(x, weight) {
  const meanSquare = np.mean(np.square(x.ref), -1, { keepdims: true });
  return x.div(np.sqrt(meanSquare.add(EPSILON))).mul(weight);
}

/** Rotates pairs half a head apart; x is tokens × heads × width. */
function rotate(x, { cosines, sines }) {
  const [low, high] = np.split(x, 2, -1);
  const rotated = [
    low.ref.mul(cosines.ref).sub(high.ref.mul(sines.ref)),
    high.mul(cosines.ref).add(low.mul(sines.ref)),
  ];
  return np.concatenate(rotated, -1);
}

function attend(x, layer, { heads, kvHeads, width }, angles) {
  const tokens = x.shape[0];
  const project = (input, weight, count) =>
    np.matmul(input, weight).reshape([tokens, count, width]);
  const query = rotate(project(x.ref, layer.query, heads), angles);
  const key = rotate(project(x.ref, layer.key, kvHeads), angles);
  const value = project(x, layer.value, kvHeads);
  const mixed = nn.dotProductAttention(query, key, value, { isCausal: true });
  return np.matmul(mixed.reshape([tokens, heads * width]), layer.output);
}

function feedForward(x, { gate, up, down }) {
  const gated = nn.silu(np.matmul(x.ref, gate)).mul(np.matmul(x, up));
  return np.matmul(gated, down);
}

function meanLoss(weights, tokens, targets, shape, angles) {
  const { embedding, layers, norm } = weights;
  const length = tokens.size;
  let x = np.take(embedding.ref, tokens, 0);
  for (const { attentionNorm, feedForwardNorm, ...layer } of layers) {
    const { gate, up, down, ...attention } = layer;
    x = x.ref.add(attend(rmsNorm(x, attentionNorm), attention, shape, angles));
    x = x.ref.add(feedForward(rmsNorm(x, feedForwardNorm), { gate, up, down }));
  }
  const logits = np.matmul(rmsNorm(x, norm), embedding.transpose());
  // Not takeAlongAxis: its gradient scatters, and jit has no scatter of a constant.
  const chosen = nn.logSoftmax(logits, -1).mul(nn.oneHot(targets, shape.vocabulary));
  return np.sum(chosen).div(-length);
}

/** One weight's AdamW; `rate` is the learning rate with both bias corrections. */
function adamW(weight, first, second, gradient, rate, learningRate) {
  first = first.mul(BETA_1).add(gradient.ref.mul(1 - BETA_1));
  second = second.mul(BETA_2).add(np.square(gradient).mul(1 - BETA_2));
  const direction = first.ref.div(np.sqrt(second.ref).add(ADAM_EPSILON));
  weight = weight.mul(1 - learningRate * WEIGHT_DECAY).sub(direction.mul(rate));
  return { weight, first, second };
}

/** A training step of one batch, as a function that gives the loss. */
export async function makeStep(config, length, learningRate) {
  await start();
  const shape = sizes(config);
  const { cosines, sines } = rotaryAngles(length, shape.width);
  const table = (values) => np.array(values).reshape([length, 1, shape.width / 2]);
  const angles = { cosines: table(cosines), sines: table(sines) };
  const lossOf = (weights, tokens, targets) => meanLoss(weights, tokens, targets, shape, angles);

  const update = jit((state, tokens, targets, rate) => {
    const [loss, gradients] = valueAndGrad(lossOf)(tree.ref(state.weights), tokens, targets);
    const [weights, structure] = tree.flatten(state.weights);
    const slopes = tree.leaves(gradients);
    const updated = weights.map((weight, i) =>
      adamW(weight, state.firsts[i], state.seconds[i], slopes[i], rate.ref, learningRate),
    );
    rate.dispose();
    const next = {
      weights: tree.unflatten(
        structure,
        updated.map((one) => one.weight),
      ),
      firsts: updated.map((one) => one.first),
      seconds: updated.map((one) => one.second),
    };
    return [loss, next];
  });

  let drawn = 0;
  const normal = (size) => random.normal(random.key(drawn++), size).mul(DEVIATION);
  const weights = makeWeights(config, normal, (count) => np.ones([count]));
  const zeros = () => tree.leaves(weights).map((weight) => np.zeros(weight.shape));
  let state = { weights, firsts: zeros(), seconds: zeros() };
  let count = 0;
  return async ({ tokens, targets }) => {
    count += 1;
    const rate = (learningRate * Math.sqrt(1 - BETA_2 ** count)) / (1 - BETA_1 ** count);
    const ids = (values) => np.array(Int32Array.from(values));
    const [loss, next] = update(state, ids(tokens), ids(targets), rate);
    state = next;
    return (await loss.data())[0];
  };
}

/** A function that multiplies two square matrices and reads one row of the result back. */
export async function makeProduct(n) {
  await start();
  const [left, right] = await blockUntilReady(
    [1, 2].map((i) => random.normal(random.key(i), [n, n])),
  );
  return () => np.matmul(left.ref, right.ref).slice(0).data();
}
