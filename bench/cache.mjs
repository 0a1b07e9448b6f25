// What packed key-value caches and packed weights cost in quality: a small model is trained on a text,
// then its loss on the text's last part is computed through each form. Importable in a page and in Node.
import configs from "./configs.json" with { type: "json" };

/** The model of the README. */
const CONFIG = configs.tiny.config;
const SEQUENCE = 128;
/** Tokens that the loss is the mean over: whole sequences of the last tenth of the text. */
const TOKENS = 160 * SEQUENCE;

/** Options of `loss`: all in f32, then one thing packed at a time. */
const FORMS = [
  {},
  ...["f16", "int8"].map((kvCache) => ({ kvCache })),
  ...["f16", "int8", "int4"].map((weights) => ({ weights })),
];

/** The mean loss over whole sequences of `tokens`, each from a beginning of its own. */
async function meanLoss(model, tokens, options) {
  let sum = 0;
  let count = 0;
  for (let at = 0; at + SEQUENCE < tokens.length && count < TOKENS; at += SEQUENCE) {
    const targets = tokens.slice(at + 1, at + SEQUENCE + 1);
    sum += SEQUENCE * (await model.loss(tokens.slice(at, at + SEQUENCE), targets, options));
    count += SEQUENCE;
  }
  return { loss: sum / count, tokens: count };
}

/**
 * @param text - what to train on, its last tenth left out.
 * @returns rows `{ kvCache, weights, loss, perplexity, tokens }`, loss in nats per token.
 */
export async function cacheSuite(tinyloom, gpu, { text, steps, limits = "adapter" }, report) {
  const { Runtime, Model, Dataset, Trainer, ByteTokenizer } = tinyloom;
  const runtime = await Runtime.create({ gpu, limits });
  const tokenizer = new ByteTokenizer();
  const ids = tokenizer.encode(text);
  const kept = Math.floor(ids.length * 0.9);
  const model = await Model.create(runtime, CONFIG, { seed: 1 });
  const dataset = Dataset.fromTokens(ids.slice(0, kept), {
    sequenceLength: SEQUENCE,
    validationFraction: 0,
  });
  const trainer = await Trainer.create(model, {});
  for await (const { step, loss } of trainer.run(dataset, { steps })) {
    if (step % 50 === 0) report({ note: `step ${step}: loss ${loss.toFixed(3)}` });
  }
  trainer.free();
  const results = [];
  for (const form of FORMS) {
    const { loss, tokens } = await meanLoss(model, ids.slice(kept), form);
    const { kvCache = "f32", weights = "f32" } = form;
    const row = { kvCache, weights, loss, perplexity: Math.exp(loss), tokens };
    results.push(row);
    report({
      note: `cache ${kvCache.padEnd(4)} weights ${weights.padEnd(4)} loss ${loss.toFixed(6)}  perplexity ${row.perplexity.toFixed(5)}  over ${tokens} tokens`,
    });
  }
  const { adapter, software } = runtime.capabilities;
  runtime.destroy();
  return { adapter, software, steps, results };
}
