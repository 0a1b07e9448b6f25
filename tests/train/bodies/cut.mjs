// A model whose matrices are larger than a binding: cut by rows into parts, which lie in several shards.
import { close, equal, ok, sameBytes, sameFiles } from "../../api/bodies/assert.mjs";
import { batch, collect, config } from "../../api/bodies/kit.mjs";

/**
 * 601 × 64 embeddings take 154 KB, gate and up 98 KB, a row of logits 2.4 KB. The vocabulary is odd: parts of the
 * embeddings are of 256, 256 and 89 rows, and rows of logits are padded.
 */
const wide = { ...config, vocab_size: 601, intermediate_size: 192 };
const CAP = 64 << 10;
const options = { learningRate: 3e-3, warmupSteps: 2, tokensPerStep: 32, totalSteps: 20, seed: 7 };
const greedy = { maxTokens: 40, temperature: 0 };

/** A runtime whose bindings hold so little, for the time of `work`. */
async function capped({ tinyloom, gpu }, work) {
  const limits = { maxStorageBufferBindingSize: CAP };
  const runtime = await tinyloom.Runtime.create({ gpu, limits });
  try {
    equal(runtime.capabilities.limits.maxStorageBufferBindingSize, CAP, "the cap");
    return await work(runtime);
  } finally {
    runtime.destroy();
  }
}

/** Losses of some steps; the one in the middle is of several micro-steps. */
async function losses(trainer, steps, from = 0) {
  const found = [];
  for (let step = from; step < from + steps; step++) {
    found.push((await trainer.step(batch(32 - (step % 3), 32 * step))).loss);
  }
  return found;
}

const tokensOf = async (model) =>
  (await collect(model.generate(batch(9).tokens, greedy))).map(({ token }) => token);

/** Dispatches of a plan by label. */
const count = (trainer, label) => trainer.plan().filter((row) => row.label === label).length;

/** Where this body's cases run: see hosts.mjs. */
export const place = {
  whole: ["firefox"],
  why: "where matrices are cut is decided in the module; limits, memory and submits are the host's",
  smoke: [
    "matrices cut into several bindings and shards train as whole ones do",
    "a cut model trains, is saved, resumed and generated from",
  ],
  always: [
    "matrices cut into several bindings and shards train as whole ones do",
    "a cut model trains, is saved, resumed and generated from",
  ],
};

export const cases = {
  async "matrices cut into several bindings and shards train as whole ones do"(host) {
    const { tinyloom, runtime } = host;
    const model = await tinyloom.Model.create(runtime, wide, { seed: 5 });
    const trainer = await tinyloom.Trainer.create(model, options);
    equal(count(trainer, "embedding"), 2, "embeddings of the whole model, and their gradients");
    const expected = await losses(trainer, 6);
    const gradients = await trainer.gradients();
    await capped(host, async (small) => {
      const cut = await tinyloom.Model.create(small, wide, { seed: 5 });
      const other = await tinyloom.Trainer.create(cut, options);
      equal(count(other, "embedding"), 6, "parts of the embeddings, and of their gradients");
      equal(count(other, "cross-entropy"), 2, "chunks of logits");
      equal(count(other, "logits"), 6, "two chunks of logits of three parts each");
      for (const [step, loss] of (await losses(other, 6)).entries()) {
        close(loss, expected[step], 1e-4, `loss of step ${step}`);
      }
      for (const [name, gradient] of Object.entries(await other.gradients())) {
        const scale = gradients[name].reduce((most, x) => Math.max(most, Math.abs(x)), 0);
        for (let i = 0; i < gradient.length; i += 17) {
          close(gradient[i], gradients[name][i], 2e-2 * scale + 1e-6, `${name}[${i}]`);
        }
      }
    });
    model.free();
    return `losses ${expected.map((loss) => loss.toFixed(4))}`;
  },

  async "a cut model trains, is saved, resumed and generated from"(host) {
    const { Model, Trainer } = host.tinyloom;
    return capped(host, async (small) => {
      const cut = await Model.create(small, wide, { seed: 8 });
      const trainer = await Trainer.create(cut, options);
      const found = await losses(trainer, 3);
      const files = await trainer.save();
      const resumed = await Trainer.resume(small, files);
      sameFiles(await resumed.save(), files, "a resumed run saves the same");
      const [on, again] = [await losses(trainer, 2, 3), await losses(resumed, 2, 3)];
      equal(again, on, "losses after the resume");
      ok(on[1] < found[0], `the loss falls: ${found}, ${on}`);
      const prompt = batch(5).tokens;
      const write = (model) => collect(model.generate(prompt, { maxTokens: 4, temperature: 0 }));
      const [said, repeated] = [await write(cut), await write(resumed.model)];
      equal(repeated, said, "tokens of both");
      const logits = await cut.logits(prompt);
      const last = logits.subarray(-wide.vocab_size);
      const likeliest = last.reduce((best, x, at) => (x > last[best] ? at : best), 0);
      equal(said[0].token, likeliest, "the first token is the likeliest of the cut logits");
    });
  },

  async "cut matrices are saved, resumed, loaded and generated from"(host) {
    const { tinyloom, runtime } = host;
    return capped(host, async (small) => {
      const cut = await tinyloom.Model.create(small, wide, { seed: 6 });
      const trainer = await tinyloom.Trainer.create(cut, options);
      await losses(trainer, 5);
      const files = await trainer.save();
      const said = await tokensOf(cut);
      const logits = await cut.logits(batch(40).tokens);
      const loss = await cut.loss(batch(40).tokens, undefined, { weights: "int8" });
      ok(Number.isFinite(loss), `a loss through packed parts of ${loss}`);
      const resumed = await tinyloom.Trainer.resume(small, files);
      sameFiles(await resumed.save(), files, "a resumed run saves the same");
      const [on, again] = [await losses(trainer, 4, 5), await losses(resumed, 4, 5)];
      equal(again, on, "losses after the resume");
      sameBytes(
        (await resumed.model.save())["model.safetensors"],
        (await cut.save())["model.safetensors"],
        "weights after the resume",
      );
      // The same file in one piece.
      const whole = await tinyloom.Model.fromPretrained(runtime, files);
      equal(await tokensOf(whole), said, "tokens of the whole model");
      const expected = await whole.logits(batch(40).tokens);
      for (let i = 0; i < logits.length; i += 7) close(logits[i], expected[i], 1e-3, `logit ${i}`);
      sameBytes((await whole.save())["model.safetensors"], files["model.safetensors"]);
      whole.free();
      return `${said.length} tokens`;
    });
  },
};
