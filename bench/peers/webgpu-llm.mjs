// webgpu-llm: its own model, kernels and AdamW, driven by its public classes.
import { LLMEngine, Model } from "webgpu-llm/llm";
import { EPSILON, sizes } from "./llama.mjs";

/** A model in f32 whose steps and cache are `length` tokens long. */
async function makeModel(config, length) {
  const { layers, hidden, heads, kvHeads, width, intermediate, vocabulary } = sizes(config);
  const engine = await new LLMEngine().init();
  const model = new Model(engine, {
    n_layers: layers,
    d_model: hidden,
    n_heads: heads,
    n_kv_heads: kvHeads,
    head_dim: width,
    kv_dim: kvHeads * width,
    d_ff: intermediate,
    activation: "swiglu",
    vocab_size: vocabulary,
    seq_len: length,
    rms_eps: EPSILON,
    precision: "fp32",
  });
  model.allocate();
  model.allocActivations();
  return model;
}

/** A training step of one batch, as a function that gives the loss. */
export async function makeStep(config, length, learningRate) {
  const model = await makeModel(config, length);
  model.allocBackward();
  return async ({ tokens, targets }) => {
    const loss = await model.forwardLoss(tokens, targets);
    await model.backward(tokens);
    await model.step({ lr: learningRate });
    return loss;
  };
}

/** Index of the largest logit. */
function likeliest(logits) {
  let best = 0;
  for (let i = 1; i < logits.length; i++) if (logits[i] > logits[best]) best = i;
  return best;
}

/** A function that writes a number of tokens after a prompt, each the likeliest. */
export async function makeWriter(config, capacity) {
  const model = await makeModel(config, capacity);
  return async (prompt, maxTokens) => {
    let logits = await model.prefillCache(prompt);
    for (let i = 0; i < maxTokens; i++) {
      logits = await model.decodeOne(likeliest(logits), prompt.length + i);
    }
  };
}
