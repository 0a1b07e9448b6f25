// Cases of storage.mjs: runs that follow a growing text, a validation set of its own, the best checkpoint, a save where
// the run is stopped, and metrics as JSON Lines.
import { close, equal, ok, refuses, sameFiles } from "../../api/bodies/assert.mjs";
import { collect, dataset, datasetOptions, text } from "../../api/bodies/kit.mjs";
import { fresh, lossesOf, stepOf } from "./storage-kit.mjs";

const contentsOf = async (run) => [
  await (await run.data()).text(),
  await run.tokenizer(),
  run.options,
];

/** The checkpoints' steps, and the loss of those that were the best. */
const kept = async (run) =>
  (await run.checkpoints()).map(({ step, validationLoss }) =>
    validationLoss === undefined ? step : [step, validationLoss],
  );

export const follow = {
  async "a run takes other data, options and another tokenizer, all or nothing"(context) {
    const { open, disk } = context;
    const runs = await open("follow");
    const run = await runs.create("one", { data: "some", tokenizer: "{}", options: { a: 1 } });
    for (const [word, wrong] of [
      ["data", { data: 3, options: { a: 2 } }],
      ["tokenizer", { tokenizer: 4, data: "other" }],
      ["text", { text: "other", data: "other" }],
      ["rate is NaN", { data: "other", options: { rate: Number.NaN } }],
    ]) {
      await refuses("invalid-options", ["run.update", word], () => run.update(wrong));
    }
    equal(await contentsOf(run), ["some", "{}", { a: 1 }], "after the refusals");
    // The second of two files cannot be written.
    await disk.folder("follow", `${run.id}/tokenizer-2`);
    const all = { data: "other", tokenizer: "[]", options: { a: 2 } };
    await refuses("invalid-options", ['the run "one"', "written"], () => run.update(all));
    equal(await contentsOf(run), ["some", "{}", { a: 1 }], "after the failure");
    await run.close();
    const again = await runs.open("one");
    equal(await contentsOf(again), ["some", "{}", { a: 1 }], "when it is opened again");

    await again.update({ data: new Blob([await again.data(), " more"]) });
    equal(await contentsOf(again), ["some more", "{}", { a: 1 }]);
    await Promise.all([
      again.update({ options: null, tokenizer: "[]" }),
      runs.rename("one", "two"),
    ]);
    await again.update({ data: new Blob([await again.data(), " and more"]) });
    await again.update({});
    equal([again.name, again.options], ["two", null]);
    await again.close();
    const other = await open("follow");
    const last = await other.open("two");
    equal(await contentsOf(last), ["some more and more", "[]", null]);
    const names = (await disk.list("follow")).map((path) => path.split("/").at(-1));
    equal(names.filter((name) => /^(data|tokenizer)/.test(name)).sort(), ["data-3", "tokenizer-2"]);
    const files = await other.export("two");
    equal(await files.data.text(), "some more and more");
    await last.close();
    await refuses("freed", ["closed"], () => last.update({ data: "x" }));
    await other.delete("two");
  },

  async "a trainer goes on with a text that has grown"(context) {
    const { tinyloom, runtime, open } = context;
    const runs = await open("grown");
    const { trainer, data, model } = await fresh(context);
    const run = await runs.create("one", { data: text });
    await collect(trainer.run(data, { steps: 2, checkpoint: { run } }));
    await model.free();
    await run.update({ data: new Blob([await run.data(), "and the end."]) });
    const more = await tinyloom.Dataset.fromText(
      await run.data(),
      new tinyloom.ByteTokenizer(),
      datasetOptions,
    );
    equal(more.tokens, data.tokens + 12);
    const resumed = await tinyloom.Trainer.resume(runtime, run);
    const options = { steps: 2, checkpoint: { run } };
    await refuses("invalid-options", ["dataChanged"], () => collect(resumed.run(more, options)));
    await collect(resumed.run(more, { ...options, dataChanged: true }));
    equal(
      (await run.metrics()).map(({ step }) => step),
      [1, 2, 3, 4],
    );
    await resumed.model.free();
    const last = await tinyloom.Trainer.resume(runtime, run);
    await collect(last.run(more, { steps: 1 }));
    await last.model.free();
    await run.close();
    await runs.delete("one");
  },

  async "evaluations are of a dataset of their own, all of it"(context) {
    const { tinyloom } = context;
    const { trainer, data, model } = await fresh(context);
    const make = (string, options) =>
      tinyloom.Dataset.fromText(string, new tinyloom.ByteTokenizer(), options);
    // Windows of one length end to end: 9 × 16 targets, and 13 more.
    const own = await make(text.slice(3, 3 + 158), { sequenceLength: 16 });
    const half = await make(text.slice(3, 3 + 158), {
      sequenceLength: 16,
      validationFraction: 0.5,
    });
    const { loss, tokens } = await trainer.evaluate(own, { all: true });
    equal(tokens, 157, "targets");
    equal(await trainer.evaluate(half, { all: true }), { loss, tokens }, "whatever its split is");
    ok((await trainer.evaluate(own)).tokens < 20, "its split alone");
    const ids = new TextEncoder().encode(text.slice(3, 3 + 158));
    const sums = [];
    for (let at = 0; at < 157; at += 16) {
      const piece = ids.subarray(at, Math.min(at + 17, 158));
      const nats = await model.loss(Uint32Array.from(piece));
      sums.push(nats * (piece.length - 1));
    }
    const mean = sums.reduce((sum, one) => sum + one, 0) / 157;
    close(loss, mean, 2e-6, "the mean of the windows' losses");
    const documents = await tinyloom.Dataset.fromDocuments(
      ["the cat sat", "on", "the mat."],
      new tinyloom.ByteTokenizer(),
      { endToken: null },
    );
    const ofDocuments = await trainer.evaluate(documents, { all: true });
    equal(ofDocuments.tokens, 10 + 1 + 7, "targets of documents");
    const seen = [];
    for await (const m of trainer.run(data, { steps: 4, evaluateEvery: 2, evaluateOn: own })) {
      if (m.step % 2 === 0)
        seen.push(m.validationLoss, (await trainer.evaluate(own, { all: true })).loss);
      else equal(m.validationLoss, undefined);
    }
    equal([seen[0], seen[2]], [seen[1], seen[3]], "of each evaluation");
    for (const [words, wrong] of [
      [["evaluateOn", "evaluateEvery"], { evaluateOn: own }],
      [["evaluateOn is", "a Dataset"], { evaluateOn: "valid", evaluateEvery: 1 }],
      [["keepBest", "true"], { evaluateEvery: 1, checkpoint: { keepBest: 1 } }],
    ]) {
      await refuses("invalid-options", words, () =>
        collect(trainer.run(data, { steps: 1, ...wrong })),
      );
    }
    await own.free();
    const freed = { steps: 1, evaluateOn: own, evaluateEvery: 1 };
    await refuses("freed", ["Dataset"], () => collect(trainer.run(data, freed)));
    equal(await trainer.steps, 4);
    await model.free();
  },

  async "the best checkpoint stays, and comes back"(context) {
    const { tinyloom, runtime, open } = context;
    const runs = await open("best");
    const run = await runs.create("one");
    const { trainer, data, model } = await fresh(context);
    await refuses("invalid-options", ["keepBest"], () => run.best());
    const checkpoint = { run, every: 100, keep: 1, keepBest: true };
    await refuses("invalid-options", ["keepBest", "evaluateEvery"], () =>
      collect(trainer.run(data, { steps: 1, checkpoint })),
    );
    const first = await collect(trainer.run(data, { until: 4, evaluateEvery: 2, checkpoint }));
    const losses = first.flatMap(({ validationLoss }) => validationLoss ?? []);
    ok(losses[1] < losses[0], "the loss falls");
    equal(await kept(run), [[4, losses[1]]], "the last one is the best");
    const best = await trainer.save();
    // A rate that ruins the weights: none of these is better.
    trainer.learningRate = 30;
    const ruined = await collect(trainer.run(data, { until: 8, evaluateEvery: 2, checkpoint }));
    ok(ruined.at(-1).validationLoss > losses[1], "the loss rises");
    equal(await kept(run), [8, [4, losses[1]]], "the newest and the best");
    await run.close();
    const again = await runs.open("one");
    const files = await again.best();
    const back = await tinyloom.Trainer.resume(runtime, files);
    equal(back.steps, 4);
    equal((await back.evaluate(data)).loss, losses[1], "the loss of the best weights");
    sameFiles(await back.save(), best, "the best files");
    const weights = await tinyloom.Model.fromPretrained(runtime, files);
    await weights.free();
    equal(await stepOf(context, again), 8, "the newest is what resumes");
    // From the newest on: what is still worse than the best of the same data is not kept for it.
    const worse = { ...checkpoint, run: again };
    await collect(trainer.run(data, { until: 9, evaluateEvery: 1, checkpoint: worse }));
    equal(await kept(again), [9, [4, losses[1]]]);
    // Other data begin anew.
    const other = await dataset(tinyloom);
    const options = { until: 10, evaluateEvery: 1, evaluateOn: other, checkpoint: worse };
    const [{ validationLoss }] = await collect(trainer.run(data, options));
    equal(await kept(again), [[10, validationLoss]]);
    await again.close();
    for (const one of [model, back.model]) await one.free();
    await runs.delete("one");
  },

  async "a run that is stopped or left saves where it stands"(context) {
    const { tinyloom, runtime, open, throughWorker } = context;
    const runs = await open("stopped");
    const run = await runs.create("one");
    const { trainer, data, model } = await fresh(context);
    const whole = lossesOf(await collect((await fresh(context)).trainer.run(data, { until: 8 })));
    const checkpoint = { run, every: 100, onAbort: true };
    const controller = new AbortController();
    const until = async (options, step, stop) => {
      for await (const m of trainer.run(data, { until: 8, ...options })) {
        if (m.step === step && stop() === "left") break;
      }
    };
    await refuses("aborted", [], () =>
      until({ checkpoint, signal: controller.signal }, 2, () => controller.abort()),
    );
    // From the page the signal may reach the worker when the next step has begun.
    const [{ step }, ...others] = await run.checkpoints();
    ok(step === trainer.steps && (step === 2 || throughWorker) && others.length === 0, `${step}`);
    equal((await run.metrics()).length, step, "metrics");
    const resumed = await tinyloom.Trainer.resume(runtime, run);
    const rest = await collect(resumed.run(data, { until: 8 }));
    equal(lossesOf(rest), whole.slice(step), "losses after the stop");
    await resumed.model.free();
    await until({ checkpoint }, step + 1, () => "left");
    equal((await run.checkpoints())[0].step, step + 1, "a loop that is left");
    // Steps that were queued are in the checkpoint, and in the metrics.
    await until({ checkpoint, stepsAhead: 2 }, step + 2, () => "left");
    const { steps } = trainer;
    equal((await run.checkpoints())[0].step, steps, "with steps ahead");
    equal((await run.metrics()).length, steps, "their metrics");
    const count = (await run.checkpoints()).length;
    const none = new AbortController();
    none.abort();
    await refuses("aborted", [], () => until({ checkpoint, signal: none.signal }, 9, () => {}));
    equal((await run.checkpoints()).length, count, "without a step there is nothing to save");
    equal(await stepOf(context, run), steps);
    await run.close();
    await model.free();
    await runs.delete("one");
  },

  async "exported metrics are JSON Lines, and lines of earlier versions are read"(context) {
    const { open, disk } = context;
    const runs = await open("lines");
    const run = await runs.create("one");
    await run.addMetrics({ step: 1, loss: 3.5, gradNorm: Number.NaN });
    await run.addMetrics({ step: 2, loss: Number.POSITIVE_INFINITY, note: 'a "quoted"\nline ✓' });
    await run.addSample({ step: 2, text: "a\u2028sample" });
    const before = await run.metrics();
    equal(before[0], { step: 1, loss: 3.5, gradNorm: null });
    await run.close();
    equal(await runs.metrics("one"), before, "written or not, they are the same");
    const linesOf = (bytes) => {
      const lines = new TextDecoder().decode(bytes).split("\n");
      equal(lines.pop(), "", "the end");
      return lines.map((line) => JSON.parse(line));
    };
    const path = `${run.id}/metrics.jsonl`;
    const stored = linesOf(await disk.read("lines", path));
    equal(
      stored.map(({ crc32, ...entry }) => entry),
      before,
      "where they are stored",
    );
    const { "metrics.jsonl": metrics, "samples.jsonl": samples } = await runs.export("one");
    equal(linesOf(await metrics.arrayBuffer()), before, "where they are exported");
    equal(linesOf(await samples.arrayBuffer()), [{ step: 2, text: "a\u2028sample" }]);
    const back = await runs.import(await runs.export("one"), "two");
    equal(await back.metrics(), before, "what comes back");
    await back.addMetrics({ step: 3 });
    await back.close();
    equal((await runs.metrics("two")).length, 3);
    const damaged = {
      "run.json": new Blob(['{"name":"three"}']),
      "metrics.jsonl": new Blob(["{\n"]),
    };
    const third = await runs.import(damaged);
    await refuses("invalid-checkpoint", ["metrics.jsonl", "line 1"], () => third.metrics());
    await third.close();
    // As it was written before: the checksum, a space, the entry.
    const old = '0a5a2f0a {"step":1}\n'.replace("0a5a2f0a", crcOf('{"step":1}'));
    await disk.write("lines", path, new TextEncoder().encode(old));
    equal(await runs.metrics("one"), [{ step: 1 }]);
    for (const name of ["one", "two", "three"]) await runs.delete(name);
  },
};

/** CRC-32, bit by bit. */
function crcOf(string) {
  let sum = 0xffff_ffff;
  for (const byte of new TextEncoder().encode(string)) {
    sum ^= byte;
    for (let bit = 0; bit < 8; bit++) sum = (sum >>> 1) ^ (0xedb88320 & -(sum & 1));
  }
  return ((sum ^ 0xffff_ffff) >>> 0).toString(16).padStart(8, "0");
}
