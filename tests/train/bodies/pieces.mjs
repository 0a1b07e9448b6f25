// What a step reads of texts: the start of each window, and documents that are cut.
import { close, equal, ok, refuses } from "../../api/bodies/assert.mjs";
import { collect, config, text, trainerOptions } from "../../api/bodies/kit.mjs";

const IGNORE_INDEX = 0xffff_ffff;
const numbers = (length, of) => Uint32Array.from({ length }, (_, i) => of(i));

async function trainerOf({ tinyloom, runtime }, more) {
  const model = await tinyloom.Model.create(runtime, config, { seed: 1 });
  return tinyloom.Trainer.create(model, { ...trainerOptions, ...more });
}

/** Three documents of 40 tokens and four of 10: of pieces of 16 the former are cut into three. */
const DOCUMENTS = [40, 10, 10, 40, 10, 40, 10].map((length, i) => text.slice(i, i + length));
const PIECES = { sequenceLength: 16, validationFraction: 0 };

/** Renders messages as `u:…;a:…;`. */
const template =
  "{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}" +
  "{% if add_generation_prompt %}a:{% endif %}";
const chat = (length) => [
  { role: "user", content: "b" },
  { role: "assistant", content: "c".repeat(length) },
];

/** Where this body's cases run: see hosts.mjs. */
export const place = {
  whole: ["node"],
  why: "windows and pieces are the module's and TypeScript's; steps and evaluations run in all hosts with other bodies",
  smoke: ["a run that began without start tokens names the option that gives them back"],
};

export const cases = {
  async "each window of one text begins with the start tokens, which are not learned"(host) {
    const { Dataset, ByteTokenizer } = host.tinyloom;
    const tokenizer = new ByteTokenizer();
    const options = { sequenceLength: 16, validationFraction: 0.05 };
    const startTokens = [1, 2];
    const data = await Dataset.fromText(text, tokenizer, { ...options, startTokens });
    const trainer = await trainerOf(host);
    const ids = tokenizer.encode(text).slice(-data.validationTokens);
    let [sum, counted] = [0, 0];
    for (let at = 0; at + 1 < ids.length; at += 16) {
      const length = Math.min(16, ids.length - 1 - at);
      const tokens = ids.slice(at, at + length);
      const targets = ids.slice(at + 1, at + 1 + length);
      if (length > 2) {
        tokens.set(startTokens);
        targets.fill(IGNORE_INDEX, 0, 2);
      }
      const learned = targets.filter((id) => id !== IGNORE_INDEX).length;
      sum += learned * (await trainer.model.loss(tokens, targets));
      counted += learned;
    }
    const { loss, tokens } = await trainer.evaluate(data);
    equal(tokens, counted, "targets");
    close(loss, sum / counted, 1e-5, "the loss of windows that were made by hand");

    // Of a text of one letter every window is the same.
    const same = await Dataset.fromText("a".repeat(400), tokenizer, {
      sequenceLength: 64,
      validationFraction: 0,
      startTokens,
    });
    const [step] = await collect(trainer.run(same, { steps: 1 }));
    const other = await trainerOf(host);
    const by = await other.step({
      tokens: numbers(64, (i) => startTokens[i] ?? 97),
      targets: numbers(64, (i) => (i < 2 ? IGNORE_INDEX : 97)),
    });
    equal([step.loss, step.gradNorm, step.cut], [by.loss, by.gradNorm, 0], "a step, to the bit");
    const plain = await Dataset.fromText("a".repeat(400), tokenizer, {
      sequenceLength: 64,
      validationFraction: 0,
    });
    const [without] = await collect(other.run(plain, { steps: 1 }));
    ok(without.loss !== by.loss, "and another without them");
    for (const one of [trainer, other]) one.model.free();
  },

  async "documents that are cut are counted in each step, and alike after a resume"(host) {
    const { Dataset, ByteTokenizer, Trainer } = host.tinyloom;
    const made = (documents, more) =>
      Dataset.fromDocuments(documents, new ByteTokenizer(), { ...PIECES, ...more });
    const data = await made(DOCUMENTS);
    const cutsOf = async (trainer, of, steps, more) =>
      (await collect(trainer.run(of, { steps, ...more }))).map(({ cut }) => cut);
    // 3 documents of 39 inputs and 4 of 9: a step reads each once.
    const epoch = await trainerOf(host, { tokensPerStep: 3 * 39 + 4 * 9 });
    equal(await cutsOf(epoch, data, 3), [3, 3, 3], "each counts once, however many pieces it has");
    equal(await cutsOf(epoch, await made(DOCUMENTS, { sequenceLength: 39 }), 1), [0], "whole");
    const batch = { tokens: numbers(20, () => 97), targets: numbers(20, () => 97) };
    equal((await epoch.step(batch)).cut, 0, "a batch of the caller's");
    epoch.model.free();

    const options = { tokensPerStep: 16, totalSteps: 12 };
    const one = await trainerOf(host, options);
    const alone = await cutsOf(one, data, 12);
    one.model.free();
    ok(alone.includes(0) && alone.includes(1), `${alone}`);
    const begun = await trainerOf(host, options);
    const first = await cutsOf(begun, data, 5);
    const resumed = await Trainer.resume(host.runtime, await begun.save());
    begun.model.free();
    const rest = await cutsOf(resumed, await made(DOCUMENTS), 7, { stepsAhead: 2 });
    resumed.model.free();
    equal([...first, ...rest], alone, "resumed, and with steps ahead");
    // Documents that are cut by the step alone.
    const bySteps = await trainerOf(host, options);
    const unsaid = await made(DOCUMENTS, { sequenceLength: undefined });
    equal(await cutsOf(bySteps, unsaid, 12), alone, "cut at tokensPerStep");
    bySteps.model.free();

    // Two trainers that draw from one dataset, by turns of their micro-steps.
    const two = { tokensPerStep: 16, totalSteps: 6, gradientAccumulation: 2 };
    const expected = [];
    for (const seed of [7, 8]) {
      const trainer = await trainerOf(host, { ...two, seed });
      expected.push(await cutsOf(trainer, await made(DOCUMENTS), 6));
      trainer.model.free();
    }
    const pair = [await trainerOf(host, two), await trainerOf(host, { ...two, seed: 8 })];
    equal(await Promise.all(pair.map((trainer) => cutsOf(trainer, data, 6))), expected, "two");
    for (const { model } of pair) model.free();
    return `${alone}, by two: ${expected.join(" and ")}`;
  },

  async "a conversation that does not fit into a step is refused, unless it may be cut"(host) {
    const { Dataset, ByteTokenizer, Trainer } = host.tinyloom;
    const made = (chats, more) =>
      Dataset.fromConversations(chats, new ByteTokenizer(), {
        template,
        validationFraction: 0.2,
        ...more,
      });
    const chats = [...Array.from({ length: 8 }, () => chat(10)), chat(93), chat(59)];
    const long = await made(chats); // "u:b;a:" and ";" are 7 tokens more, the last is only a target
    equal(long.sequenceLength, 99, "the longest");
    equal((await made([...chats, chat(3000)])).sequenceLength, 3006, "however long it is");
    const trainer = await trainerOf(host);
    const words = [
      "takes 99 places of a step, 35 more than tokensPerStep, 64",
      "2 of 10 conversations take more",
      "tokensPerStep to 99",
      "sequenceLength: 64",
    ];
    for (const data of [long, await Dataset.load(await long.save())]) {
      await refuses("invalid-options", words, () => collect(trainer.run(data, { steps: 1 })));
      await refuses("invalid-options", words, () => trainer.evaluate(data));
      await refuses("invalid-options", words, () =>
        Trainer.findLearningRate(trainer.model, data, {
          steps: 3,
          trainer: { tokensPerStep: 64 },
        }),
      );
    }
    equal(trainer.steps, 0, "nothing was done");
    const cut = await made([chat(93)], { sequenceLength: 64, validationFraction: 0 });
    const steps = await collect(trainer.run(cut, { steps: 4 }));
    equal(
      steps.map((step) => [step.cut, step.tokens]),
      [64, 35, 64, 35].map((tokens) => [1, tokens]),
      "two pieces, each in a step of its own",
    );
    const fitting = await made(chats.slice(0, 8), { validationFraction: 0 });
    equal((await collect(trainer.run(fitting, { steps: 1 })))[0].cut, 0, "whole");
    trainer.model.free();
    const wide = await trainerOf(host, { tokensPerStep: 99 });
    equal((await collect(wide.run(long, { steps: 1 })))[0].cut, 0, "in a longer step");
    wide.model.free();
  },

  async "a run that began without start tokens names the option that gives them back"(host) {
    const { Dataset, ByteTokenizer, Trainer } = host.tinyloom;
    const tokenizer = new ByteTokenizer();
    const pairs = DOCUMENTS.map((prompt) => ({ prompt, completion: "x" }));
    const textOf = (startTokens) =>
      Dataset.fromText(text, tokenizer, { sequenceLength: 16, startTokens });
    const pairsOf = (startTokens) =>
      Dataset.fromDocuments(pairs, tokenizer, { ...PIECES, startTokens });
    for (const [make, ...words] of [
      [textOf, "startTokens: false"],
      [pairsOf, "startTokens: false and joined: false"],
    ]) {
      const begun = await trainerOf(host);
      await collect(begun.run(await make(false), { steps: 1 }));
      const files = await begun.save();
      begun.model.free();
      const resumed = await Trainer.resume(host.runtime, files);
      const other = await make([1]);
      await refuses("invalid-options", ["dataChanged: true", "tinyloom 0.1", ...words], () =>
        collect(resumed.run(other, { steps: 1 })),
      );
      await collect(resumed.run(await make(false), { steps: 1 }));
      resumed.model.free();
    }
    // Documents that a step cuts, and that are cut there by the option, are the same pieces.
    const whole = (sequenceLength) =>
      Dataset.fromDocuments([text.slice(0, 200)], tokenizer, {
        validationFraction: 0,
        ...(sequenceLength && { sequenceLength }),
      });
    const begun = await trainerOf(host);
    const [first] = await collect(begun.run(await whole(), { steps: 1 }));
    equal(first.cut, 1, "cut by the step");
    const resumed = await Trainer.resume(host.runtime, await begun.save());
    const [[next], [expected]] = [
      await collect(resumed.run(await whole(64), { steps: 1 })),
      await collect(begun.run(await whole(), { steps: 1 })),
    ];
    equal([next.loss, next.cut], [expected.loss, expected.cut], "goes on as it was");
    const less = await Trainer.resume(host.runtime, await begun.save());
    await refuses("invalid-options", "sequenceLength 199", async () =>
      collect(less.run(await whole(32), { steps: 1 })),
    );
    for (const { model } of [begun, resumed, less]) model.free();
  },
};
