// What callers of the trainers of preference may get wrong: references, counts, getters, rewards, steps of other calls.
import { equal, ok, refuses, sameBytes } from "../../api/bodies/assert.mjs";
import { collect, trainerOptions } from "../../api/bodies/kit.mjs";

/** Where this body's cases run: see hosts.mjs. */
export const place = {
  whole: ["node"],
  why: "all of it is said in the page, before a GPU has work or beside it",
  smoke: ["a reference that cannot be"],
};

const config = {
  model_type: "llama",
  vocab_size: 64,
  hidden_size: 16,
  intermediate_size: 16,
  num_hidden_layers: 1,
  num_attention_heads: 2,
  max_position_embeddings: 16,
  tie_word_embeddings: true,
};
const PAIRS = [
  { prompt: [1, 2], chosen: [3, 4, 5], rejected: [6, 7] },
  { prompt: [9], chosen: [3, 4], rejected: [2] },
];
const TEXTS = PAIRS.map(({ prompt, chosen }, i) => ({ prompt, completion: chosen, desirable: !i }));
const PROMPTS = [
  [1, 2, 3],
  [4, 5],
];
const asked = { reward: ({ tokens }) => tokens[0], group: 2, maxTokens: 4, stopToken: null };
const HUGE = 2e9;

const make = ({ tinyloom, runtime }, more = {}) =>
  tinyloom.Model.create(runtime, { ...config, ...more }, { seed: 5 });

const open = async (host, more = {}) =>
  host.tinyloom.Trainer.create(await make(host), { ...trainerOptions, ...more });

/** Makes a property of an object throw when it is read. */
const trapped = (of, name) =>
  Object.defineProperty(of, name, {
    enumerable: true,
    get() {
      throw new RangeError("not for you");
    },
  });

/** Refuses a call of the name, which makes no step. */
const refusing =
  ({ tinyloom }, trainer) =>
  async (name, given, options, words, code = "invalid-options") => {
    await refuses(code, words, () => collect(tinyloom.align[name](trainer, given, options)));
    equal(trainer.steps, 0, "steps");
  };

export const cases = {
  async "a reference that cannot be"(host) {
    const trainer = await open(host);
    const narrow = await make(host, { vocab_size: 32 });
    const wrong = refusing(host, trainer);
    const hole = Object.assign(new Array(2), { 1: -2 });
    await wrong("dpo", PAIRS, { reference: [hole, [-1, -2]] }, "reference[0] is");
    const pair = trapped([-1, -2], 0);
    await wrong("dpo", PAIRS, { reference: [pair, [-1, -2]] }, "dpo: reference: what was given");
    await wrong(
      "dpo",
      PAIRS,
      { reference: narrow },
      "vocab_size of reference is 32, below the model's",
    );
    await wrong("dpo", PAIRS, { loss: "simpo", reference: narrow }, "reference has no meaning");
    await wrong("kto", TEXTS, { reference: narrow }, "vocab_size of reference is 32");
    const itself = { reference: trainer.model };
    await wrong("kto", TEXTS, itself, "kto: reference is the model that is trained");
    const kl = { ...asked, klCoefficient: 0.1 };
    await wrong("grpo", PROMPTS, { ...kl, reference: narrow }, "vocab_size of reference is 32");
    await wrong("grpo", PROMPTS, { ...kl, ...itself }, "grpo: reference is the model that is");
    for (const model of [narrow, trainer.model]) model.free();
  },

  async "counts that no step has room for, and getters that throw"(host) {
    const { Dataset } = host.tinyloom;
    const trainer = await open(host);
    const wrong = refusing(host, trainer);
    const other = await make(host);
    const texts = { reference: other };
    await wrong("dpo", PAIRS, { pairsPerStep: HUGE }, "pairsPerStep is 2000000000; with 4");
    await wrong(
      "kto",
      TEXTS,
      { ...texts, textsPerStep: HUGE },
      "textsPerStep is 2000000000; with 2",
    );
    const data = Dataset.fromTokens(new Uint32Array(60), { sequenceLength: 16 });
    const most = { documentsPerStep: HUGE };
    await refuses("invalid-options", "documentsPerStep is 2000000000; with 1", () =>
      collect(host.tinyloom.align.distill(trainer, other, data, most)),
    );
    await wrong("dpo", trapped([...PAIRS], 1), {}, "dpo: pairs: what was given threw");
    const text = trapped({ ...TEXTS[0] }, "desirable");
    await wrong("kto", [text, TEXTS[1]], texts, "kto: texts[0]: what was given threw");
    const tokenizer = trapped(new host.tinyloom.ByteTokenizer(), "endToken");
    const ends = { ...asked, stopToken: undefined };
    await wrong("grpo", PROMPTS, { ...ends, tokenizer }, "grpo: tokenizer: what was given threw");
    await wrong("grpo", PROMPTS, { ...asked, tokenizer: null }, "tokenizer is null");
    const long = [PROMPTS[0], new Array(16).fill(1)];
    await wrong("grpo", long, asked, "prompts[1] has 16 tokens", "invalid-tokens");
    await wrong("grpo", PROMPTS, { ...asked, reward: () => 1e31 }, "reward() gave 1e+31");
    for (const model of [other, trainer.model]) model.free();
  },

  async "scales that f32 does not hold, and what only looks like a trainer or a dataset"(host) {
    const { dpo, distill } = host.tinyloom.align;
    const trainer = await open(host);
    const reference = await make(host);
    const wrong = refusing(host, trainer);
    await wrong("dpo", PAIRS, { loss: "ipo", beta: 1e-320 }, "beta is 1e-320");
    await wrong("dpo", PAIRS, { beta: 1e300 }, "beta is 1e+300");
    await wrong("dpo", PAIRS, { loss: "simpo", gamma: 1e300 }, "gamma is 1e+300");
    await wrong("kto", TEXTS, { reference, beta: 1e300 }, "beta is 1e+300");
    const none = { reference, desirableWeight: 0, undesirableWeight: 0 };
    await wrong("kto", TEXTS, none, "desirableWeight and undesirableWeight are 0");
    const kl = { ...asked, reference, klCoefficient: 1e300 };
    await wrong("grpo", PROMPTS, kl, "klCoefficient is 1e+300");
    await refuses("invalid-options", "dpo: the trainer is", () =>
      collect(dpo({ step: () => {} }, PAIRS)),
    );
    await refuses("invalid-options", "distill: the dataset is", () =>
      collect(distill(trainer, reference, { document: () => {} })),
    );
    for (const model of [reference, trainer.model]) model.free();
  },

  async "a reward may change its lists"(host) {
    const weights = [];
    for (const change of [
      () => {},
      ({ tokens, prompt }) => [tokens, prompt].map((x) => x.fill(1)),
    ]) {
      const trainer = await open(host);
      const reward = (rollout) => {
        const worth = asked.reward(rollout);
        change(rollout);
        return worth;
      };
      await collect(host.tinyloom.align.grpo(trainer, PROMPTS, { ...asked, reward, steps: 1 }));
      weights.push((await trainer.model.save())["model.safetensors"]);
      trainer.model.free();
    }
    sameBytes(weights[1], weights[0], "weights");
  },

  async "the signal does not wait for a reward"(host) {
    const trainer = await open(host);
    const stop = new AbortController();
    const reward = () => {
      stop.abort();
      return new Promise(() => {});
    };
    const options = { ...asked, reward, signal: stop.signal };
    await refusing(host, trainer)("grpo", PROMPTS, options, "grpo", "aborted");
    trainer.model.free();
  },

  async "a step that fails leaves no half of it behind"(host) {
    const { dpo, kto } = host.tinyloom.align;
    const trainer = await open(host, { gradientAccumulation: 2 });
    const far = {
      loss: "ipo",
      pairsPerStep: 1,
      reference: [
        [-1, -2],
        [1e300, 0],
      ],
    };
    await refuses("non-finite", "dpo: a target would have the weight", () =>
      collect(dpo(trainer, PAIRS, far)),
    );
    const reference = await make(host);
    const gone = kto(trainer, [...TEXTS, ...TEXTS], { reference, textsPerStep: 2, steps: 2 });
    equal((await gone.next()).value.step, 1);
    reference.free();
    await refuses("freed", "Model", () => gone.next());
    const batch = { tokens: [1, 2], targets: [2, 3] };
    for (const step of [1, 2]) equal((await trainer.step(batch)).step, step, "a step of its own");
    trainer.model.free();
  },

  async "a step of another call between scores and step is refused"(host) {
    const { dpo, grpo } = host.tinyloom.align;
    const trainer = await open(host);
    const reward = async ({ tokens }) => {
      if (trainer.steps === 0) await trainer.step({ tokens: [1, 2], targets: [2, 3] });
      return tokens[0];
    };
    await refuses("invalid-options", "grpo: another call stepped the trainer", () =>
      collect(grpo(trainer, PROMPTS, { ...asked, reward, steps: 1 })),
    );
    const runs = Array.from({ length: 2 }, () => collect(dpo(trainer, PAIRS, { steps: 2 })));
    const ends = await Promise.allSettled(runs);
    ok(
      ends.some(({ reason }) => reason?.message.startsWith("dpo: another call stepped")),
      "two calls at a time",
    );
    const metrics = await collect(dpo(trainer, PAIRS, { steps: 2 }));
    equal(metrics.length, 2, "one call behind the other");
    trainer.model.free();
  },
};
