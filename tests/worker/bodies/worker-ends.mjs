// Through `connect()`: errors, signals, loops that are left, calls that alternate, runtimes that end.
import { equal, ok, refuses } from "../../api/bodies/assert.mjs";
import { batch, collect, config, dataset, datasetOptions, text } from "../../api/bodies/kit.mjs";
import { make } from "./worker-kit.mjs";

export const ends = {
  async "errors have their codes"({ tinyloom, runtime }) {
    const { Model, Runtime, Trainer, Dataset, ByteTokenizer, TinyloomError } = tinyloom;
    const model = await Model.create(runtime, config);
    const error = await refuses("invalid-config", "hidden_size", () =>
      Model.create(runtime, { hidden_size: -1 }),
    );
    ok(error instanceof TinyloomError, "the class is the page's");
    await refuses("invalid-options", "heat", () => model.generate([1], { heat: 1 }));
    const tokenizer = { decoder: () => ({ push: () => "", end: () => "" }) };
    await refuses("invalid-options", ["cannot go to the worker", "tokenizer"], () =>
      model.generate([1], { tokenizer }),
    );
    const asking = { fetch: (url, init) => globalThis.fetch(url, init) };
    await refuses(
      "invalid-options",
      ["Model.fromPretrained", "cannot go to the worker", "asks for files"],
      () => Model.fromPretrained(runtime, "https://example.invalid/model", asking),
    );
    const files = { "tokenizer.json": "{}" };
    const saving = model.save({ format: "gguf", tokenizer: files });
    const unread = await saving.catch((caught) => caught);
    ok(!unread.message.includes("cannot go"), `files of a tokenizer go there: ${unread.message}`);
    const like = { aborted: false, addEventListener() {} };
    await refuses("invalid-options", ["signal is", "AbortSignal"], () =>
      model.loss([1, 2], undefined, { signal: like }),
    );
    await refuses("invalid-options", "learningRate", () =>
      Trainer.create(model, { learningRate: -1 }),
    );
    await refuses("invalid-tokens", "256", () => model.logits([256]));
    await refuses("invalid-tokens", "text", () => Dataset.fromText("", new ByteTokenizer()));
    await refuses("invalid-checkpoint", "config.json", () => Model.fromPretrained(runtime, {}));
    const capped = await Runtime.create({ limits: { maxStorageBufferBindingSize: 32_768 } });
    const narrow = await Model.create(capped, config);
    await refuses("limit-exceeded", "32768", () => Trainer.create(narrow, { tokensPerStep: 64 }));
    await capped.destroy();
    const signal = AbortSignal.abort();
    await refuses("aborted", "", () => model.generate([1], { signal }));
    await refuses("invalid-options", "Runtime", () => Model.create({}, config));
    await model.free();
    await refuses("freed", "Model", () => model.logits([1]));
    await refuses("freed", "Model", () => model.generate([1]));
  },

  async "a run is cancelled, left and continued, and a resume goes on to the bit"({
    tinyloom,
    runtime,
  }) {
    const data = await dataset(tinyloom);
    const whole = await make(tinyloom, runtime);
    const expected = (await collect(whole.run(data, { steps: 9 }))).map((m) => m.loss);
    const trainer = await make(tinyloom, runtime);
    const losses = [];
    const controller = new AbortController();
    await refuses("aborted", "run", async () => {
      for await (const m of trainer.run(data, { steps: 9, signal: controller.signal })) {
        losses.push(m.loss);
        if (m.step === 3) controller.abort();
      }
    });
    equal(losses.length, 3, "steps before the signal");
    for await (const m of trainer.run(data, { steps: 6 })) {
      losses.push(m.loss);
      if (m.step === 6) break;
    }
    const files = await trainer.save();
    const state = JSON.parse(new TextDecoder().decode(files["trainer_state.json"]));
    equal(state.progress.step, 6, "no step after the loop was left");
    const resumed = await tinyloom.Trainer.resume(runtime, files);
    for await (const m of resumed.run(data, { steps: 3 })) losses.push(m.loss);
    equal(losses, expected, "losses");
    for (const { model } of [whole, trainer, resumed]) await model.free();
  },

  async "generation is left early, and two take turns"({ tinyloom, runtime }) {
    const model = await tinyloom.Model.create(runtime, config, { seed: 1 });
    const options = { maxTokens: 12, seed: 5 };
    const all = await collect(model.generate([1, 2], options));
    equal(all.length, 12);
    const some = [];
    for await (const one of model.generate([1, 2], options)) {
      some.push(one);
      if (some.length === 3) break;
    }
    equal(some, all.slice(0, 3), "the tokens before the loop was left");
    const [a, b] = [model.generate([1, 2], options), model.generate([1, 2], options)];
    // Tokens alone: who comes second has its text read again, which sums logarithms in another order.
    const ids = all.map(({ token }) => token);
    const prompts = [[1, 2], { prompt: Uint32Array.of(1, 2), seed: 6, maxTokens: 5 }];
    const texts = [[], []];
    for await (const { index, token } of model.generateBatch(prompts, options)) {
      texts[index].push(token);
    }
    equal(texts[0], ids, "a batch");
    equal(texts[1].length, 5);
    await refuses("invalid-options", "array of prompts", () => model.generateBatch([]));
    const turns = { a: [], b: [] };
    for (let index = 0; index < 4; index++) {
      turns.a.push((await a.next()).value.token);
      turns.b.push((await b.next()).value.token);
      await model.loss([1, 2, 3]);
    }
    equal(turns, { a: ids.slice(0, 4), b: ids.slice(0, 4) }, "tokens");
    await a.return();
    equal((await a.next()).done, true);
    equal((await b.next()).value.token, ids[4], "the other goes on");
    await model.free();
  },

  async "calls that alternate run in order"({ tinyloom, runtime }) {
    const data = await dataset(tinyloom);
    const trainer = await make(tinyloom, runtime);
    const run = trainer.run(data, { steps: 3 });
    // The second step is asked for when the first has ended, and so comes after the others.
    const [first, loss, second, files] = await Promise.all([
      run.next(),
      trainer.model.loss(batch(16).tokens),
      run.next(),
      trainer.save(),
    ]);
    equal([first.value.step, second.value.step], [1, 2]);
    ok(Number.isFinite(loss), "the loss between them");
    equal(JSON.parse(new TextDecoder().decode(files["trainer_state.json"])).progress.step, 1);
    await run.return();
    await trainer.model.free();
  },

  async "two runtimes live beside each other, and one that is destroyed refuses"({
    tinyloom,
    runtime,
  }) {
    const other = await tinyloom.Runtime.create();
    const [a, b] = [await make(tinyloom, runtime), await make(tinyloom, other)];
    const data = await tinyloom.Dataset.fromTokens(
      new tinyloom.ByteTokenizer().encode(text),
      datasetOptions,
    );
    const losses = async (trainer) =>
      (await collect(trainer.run(data, { steps: 3 }))).map((m) => m.loss);
    equal(await losses(b), await losses(a), "losses");
    const running = b.run(data, { steps: 100 });
    await running.next();
    await other.destroy();
    const { reason, message } = await other.lost;
    ok(reason && typeof message === "string", "lost settles");
    await refuses("freed", "Trainer", () => running);
    await refuses("freed", "", () => b.model.logits([1]));
    await refuses("freed", "", () => b.model.parameterCount);
    await refuses("freed", "", () => tinyloom.Model.create(other, config));
    equal((await a.step(batch(16))).step, 4, "the other goes on");
    await a.model.free();
  },

  async "a lost device is recovered there, and its states are told here"({ tinyloom }) {
    const states = [];
    const onState = (state) => states.push(state);
    const other = await tinyloom.Runtime.create({ recover: { onState } });
    const trainer = await make(tinyloom, other);
    const data = await dataset(tinyloom);
    const seen = [];
    for await (const { step, recovered } of trainer.run(data, { steps: 5 })) {
      if (step === 3) await other.simulateLoss();
      // On a slow machine a snapshot may have been taken.
      seen.push(recovered ? [step, recovered.fromStep <= 3] : step);
    }
    equal(seen, [1, 2, 3, [4, true], 5], "steps, and where the run went on");
    const told = states.map(({ state }) => state).filter((state) => state !== "snapshot");
    equal(told, ["lost", "reopened", "recovered"], "states");
    await other.destroy();
  },
};
