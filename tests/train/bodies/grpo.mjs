// Reinforcement: it learns what is rewarded, repeats itself, and refuses what cannot be. Beside a reference in float64 it
// is in tests/train/grpo.test.mjs.
import { close, equal, ok, refuses } from "../../api/bodies/assert.mjs";
import { collect, trainerOptions } from "../../api/bodies/kit.mjs";

/** Where this body's cases run: see hosts.mjs. */
export const place = {
  whole: ["node"],
  why: "all of it is generations, scores and steps, which other bodies have",
  smoke: ["what is rewarded becomes likelier, and the same run gives the same"],
};

const config = {
  model_type: "llama",
  vocab_size: 256,
  hidden_size: 32,
  intermediate_size: 48,
  num_hidden_layers: 1,
  num_attention_heads: 2,
  max_position_embeddings: 16,
  tie_word_embeddings: true,
};
const PROMPTS = [[65, 66, 67], [68], [69, 70]];
/** The share of a text that is lower-case letters. */
const letters = ({ tokens }) => tokens.filter((id) => id >= 97 && id < 123).length / tokens.length;
const asked = { reward: letters, group: 8, maxTokens: 6, stopToken: null };

const open = async ({ tinyloom, runtime }, more = {}, of = (model) => model) => {
  const model = await tinyloom.Model.create(runtime, config, { seed: 5 });
  const options = { ...trainerOptions, learningRate: 0.05, warmupSteps: 1, schedule: "constant" };
  const trained = await of(model);
  return tinyloom.Trainer.create(trained, { ...options, tokensPerStep: 256, ...more });
};

const without = (metrics, ...names) =>
  metrics.map((one) => Object.fromEntries(Object.entries(one).filter(([k]) => !names.includes(k))));

export const cases = {
  async "what is rewarded becomes likelier, and the same run gives the same"(host) {
    const runs = [];
    for (let i = 0; i < 2; i++) {
      const trainer = await open(host);
      const metrics = await collect(
        host.tinyloom.align.grpo(trainer, PROMPTS, { ...asked, promptsPerStep: 2, steps: 12 }),
      );
      runs.push(without(metrics, "milliseconds", "generationMilliseconds"));
      trainer.model.free();
    }
    equal(runs[1], runs[0]);
    const rewards = runs[0].map(({ reward }) => reward);
    const [before, after] = [rewards.slice(0, 3), rewards.slice(-3)].map((own) => Math.max(...own));
    ok(after > before + 0.2, `rewards ${rewards}`);
    const [first, last] = [runs[0][0], runs[0][11]];
    ok(last.entropy < first.entropy && first.entropy < Math.log(256) + 1e-3);
    equal([first.length, first.finished, first.clipped, first.kl], [6, 0, 0, undefined]);
  },

  async "prompts of a step are the same in one micro-step or in two"(host) {
    const found = [];
    for (const [promptsPerStep, gradientAccumulation] of [
      [2, 1],
      [1, 2],
    ]) {
      const trainer = await open(host, { gradientAccumulation });
      const run = { ...asked, promptsPerStep, steps: 1, advantages: "batch", loss: "grpo" };
      const [metrics] = await collect(host.tinyloom.align.grpo(trainer, PROMPTS, run));
      found.push({ ...metrics, gradients: await trainer.gradients() });
      trainer.model.free();
    }
    const [one, two] = found;
    equal([two.step, two.reward, two.length], [1, one.reward, one.length]);
    for (const name of ["objective", "entropy", "gradNorm"])
      close(two[name], one[name], 1e-5, name);
    for (const [name, values] of Object.entries(one.gradients)) {
      const most = values.reduce((all, x) => Math.max(all, Math.abs(x)), 0);
      ok(
        values.every((x, i) => Math.abs(x - two.gradients[name][i]) <= 1e-5 * most),
        name,
      );
    }
  },

  async "advantages are divided by the deviation of rewards, or by nothing"(host) {
    const found = [];
    for (const advantages of ["group", "none"]) {
      const trainer = await open(host);
      const run = { ...asked, steps: 1, advantages };
      found.push(...(await collect(host.tinyloom.align.grpo(trainer, PROMPTS, run))));
      trainer.model.free();
    }
    const [divided, plain] = found;
    ok(divided.rewardDeviation > 0.01, "rewards differ");
    const ratio = plain.gradNorm / divided.gradNorm;
    close(ratio, divided.rewardDeviation + 1e-4, 1e-4 * ratio, "the gradient's norm");
  },

  async "an adapter's reference is the model without it; rewards see texts"(host) {
    const { Adapter, ByteTokenizer } = host.tinyloom;
    const trainer = await open(host, {}, (model) => Adapter.create(model, { rank: 4, seed: 3 }));
    const seen = [];
    const reward = async (rollout) => {
      await undefined;
      seen.push(rollout);
      return letters(rollout);
    };
    const tokenizer = new ByteTokenizer();
    const run = { ...asked, reward, tokenizer, group: 4, klCoefficient: 0.1, steps: 3, updates: 3 };
    const metrics = await collect(
      host.tinyloom.align.grpo(trainer, PROMPTS, { ...run, stopToken: 65 }),
    );
    close(metrics[0].kl, 0, 1e-9, "the adapter adds nothing at first");
    ok(metrics[2].kl > 1e-6, `divergences ${metrics.map(({ kl }) => kl)}`);
    ok(metrics[0].generationMilliseconds > 0 && metrics[1].generationMilliseconds === 0);
    equal(seen.length, 4, "texts of three updates are drawn once");
    for (const { index, prompt, tokens, text, finished } of seen) {
      equal([index, [...prompt], tokens.at(-1) === 65], [0, PROMPTS[0], finished]);
      equal(
        text,
        new TextDecoder().decode(Uint8Array.from(finished ? tokens.slice(0, -1) : tokens)),
      );
    }
    trainer.model.free();
  },

  async "GPT-2's texts end at their stop token, at maxTokens and at the context"({
    tinyloom,
    runtime,
  }) {
    const [attn_pdrop, embd_pdrop, resid_pdrop] = [0, 0, 0];
    const sizes = { model_type: "gpt2", vocab_size: 8, n_embd: 16, n_layer: 1, n_head: 2 };
    const dropout = { attn_pdrop, embd_pdrop, resid_pdrop };
    const model = await tinyloom.Model.create(runtime, { ...sizes, ...dropout, n_positions: 6 });
    const trainer = await tinyloom.Trainer.create(model, {
      tokensPerStep: 192,
      learningRate: 1e-4,
    });
    const seen = [];
    const reward = (rollout) => seen.push(rollout);
    const prompts = [[1], [1, 2, 3]];
    const own = { reward, group: 16, promptsPerStep: 2, maxTokens: 4, stopToken: 3, steps: 1 };
    const [{ finished }] = await collect(tinyloom.align.grpo(trainer, prompts, own));
    for (const { prompt, tokens, finished } of seen) {
      const most = Math.min(4, 6 - prompt.length);
      equal(tokens.indexOf(3), finished ? tokens.length - 1 : -1);
      ok(tokens.length <= most && (finished || tokens.length === most), `${tokens}`);
    }
    ok(finished > 0.2 && finished < 1, `${finished} have ended`);
    model.free();
  },

  async "what cannot be is refused"(host) {
    const trainer = await open(host);
    const { grpo } = host.tinyloom.align;
    for (const [prompts, more, word, code = "invalid-options"] of [
      [[], {}, "no prompts"],
      [undefined, {}, "prompts is undefined"],
      [["2 + 2 ="], {}, 'prompts[0] is "2 + 2 ="', "invalid-tokens"],
      [[PROMPTS[0], []], {}, "prompts[1] is empty", "invalid-tokens"],
      [[[1, 300]], {}, "prompts[0][1] is 300", "invalid-tokens"],
      [PROMPTS, { reward: undefined }, "reward"],
      [PROMPTS, { reward: () => Number.NaN }, "reward() gave NaN"],
      [PROMPTS, { group: 1 }, "group is 1"],
      [PROMPTS, { stopToken: 256 }, "stopToken is 256; it must be below vocab_size, 256"],
      [PROMPTS, { klCoefficient: 0.1 }, "reference is missing"],
      [PROMPTS, { klCoefficient: 0.1, reference: {} }, "reference is"],
      [PROMPTS, { steps: 3, updates: 2 }, "a multiple of updates"],
      [PROMPTS, { group: 64 }, "tokensPerStep is 256"],
      [PROMPTS, { checkpoint: { run: {} } }, "run is"],
      [PROMPTS, { temperature: 0 }, "temperature is 0"],
    ]) {
      await refuses(code, word, () => collect(grpo(trainer, prompts, { ...asked, ...more })));
    }
    const failing = () => {
      throw new Error("no judge");
    };
    await refuses("invalid-options", "no judge", () =>
      collect(grpo(trainer, PROMPTS, { ...asked, reward: failing })),
    );
    const ended = AbortSignal.abort();
    await refuses("aborted", "grpo", () =>
      collect(grpo(trainer, PROMPTS, { ...asked, signal: ended })),
    );
    equal(trainer.steps, 0);
    trainer.model.free();
  },
};
