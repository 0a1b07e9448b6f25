// Runs in storage. The same cases run on the API itself and through `tinyloom/worker`, so all is awaited.
import { equal, ok, refuses, sameFiles } from "../../api/bodies/assert.mjs";
import { collect, datasetOptions, text } from "../../api/bodies/kit.mjs";
import { files } from "./storage-files.mjs";
import { follow } from "./storage-follow.mjs";
import { freed } from "./storage-freed.mjs";
import { fresh, lossesOf, stepOf, twoCheckpoints } from "./storage-kit.mjs";
import { notes } from "./storage-notes.mjs";

/** Milliseconds that a case may take at most. */
const LIMIT = 180_000;

export const cases = {
  ...notes,
  ...freed,
  ...files,
  ...follow,

  async "a run goes on from its checkpoint to the same bits, and keeps what it was given"(context) {
    const { tinyloom, runtime, open, where } = context;
    const runs = await open("go-on");
    equal(runs.where, where, "where the runs are");
    await refuses("invalid-options", "new Runs()", async () => new runs.constructor());
    const { trainer, data, model } = await fresh(context);
    const run = await runs.create("first", {
      data: "the data",
      tokenizer: "{}",
      options: { a: 1 },
    });
    await refuses("invalid-options", "new StoredRun()", async () => new run.constructor());
    for (const [words, wrong] of [
      [["checkpoint needs run", "runs.create"], { every: 2 }],
      [["checkpoint: run is", "runs.create"], { run: {} }],
      [["checkpoint is", "object"], true],
    ]) {
      const begin = () => collect(trainer.run(data, { steps: 1, checkpoint: wrong }));
      await refuses("invalid-options", words, begin);
    }
    const checkpoint = { run, every: 2, keep: 2 };
    const before = await collect(trainer.run(data, { until: 7, checkpoint }));
    const whole = await run.checkpoints();
    equal(
      whole.map(({ step }) => step),
      [7, 6],
      "steps of the checkpoints",
    );
    equal(lossesOf(await run.metrics()), lossesOf(before), "the metrics kept");
    await run.addSample({ step: 7, text: "the cat" });
    await run.close();
    const reference = await collect(trainer.run(data, { until: 10 }));
    const files = await trainer.save();

    const again = await runs.open("first");
    const resumed = await tinyloom.Trainer.resume(runtime, again);
    equal(resumed.steps, 7, "the step that it goes on from");
    const other = await tinyloom.Dataset.fromText(
      text.slice(1),
      new tinyloom.ByteTokenizer(),
      datasetOptions,
    );
    await refuses("invalid-options", [data.hash, other.hash, "dataChanged: true"], () =>
      collect(resumed.run(other, { until: 10, checkpoint: { run: again } })),
    );
    equal((await again.metrics()).length, 7, "metrics after the refusal");
    const after = await collect(resumed.run(data, { until: 10, checkpoint: { run: again } }));
    equal(lossesOf(after), lossesOf(reference), "losses after the resume");
    sameFiles(await resumed.save(), files, "files after the resume");
    const model2 = await tinyloom.Model.fromPretrained(runtime, again);
    const { "model.safetensors": weights } = await model2.save();
    sameFiles({ weights }, { weights: files["model.safetensors"] }, "the model alone");
    equal(await (await again.data()).text(), "the data");
    equal(await again.tokenizer(), "{}");
    equal(again.options, { a: 1 });
    equal(await again.samples(), [{ step: 7, text: "the cat" }]);
    equal((await again.metrics()).length, 10, "metrics of both runs");
    await again.close();
    for (const one of [model, resumed.model, model2]) await one.free();
    await runs.delete("first");
    equal(await runs.list(), []);
  },

  async "a save into a run is a checkpoint; one that is stopped leaves the earlier ones"(context) {
    const runs = await context.open("save");
    const run = await twoCheckpoints(context, runs, "one");
    const { trainer, model, data } = await fresh(context);
    await trainer.save({ to: run });
    equal(
      (await run.checkpoints()).map(({ step }) => step),
      [0, 4],
    );
    const controller = new AbortController();
    const stop = {
      to: run,
      signal: controller.signal,
      onProgress: ({ stage }) => stage.includes("optimizer") && controller.abort(),
    };
    // From the page the signal may reach the worker when so small a save has ended.
    if (context.throughWorker) controller.abort();
    await refuses("aborted", [], () => trainer.save(stop));
    equal(
      (await run.checkpoints()).map(({ step }) => step),
      [0, 4],
      "after the stopped save",
    );
    equal(await stepOf(context, run), 0);
    await run.close();
    await refuses("freed", ["closed"], () => trainer.save({ to: run }));
    await refuses("freed", ["closed"], () => run.metrics());
    const late = { steps: 1, checkpoint: { run, every: 1 } };
    await refuses("freed", ["closed"], () => collect(trainer.run(data, late)));
    equal(await trainer.steps, 0, "refused before the first step");
    await model.free();
    await runs.delete("one");
  },

  async "a run is open once, and names are held to"(context) {
    const runs = await context.open("names");
    const other = await context.open("names");
    const run = await runs.create("one");
    await refuses("in-use", ["one"], () => runs.open("one"));
    await refuses("in-use", ["one"], () => other.open("one"));
    await refuses("in-use", ["one"], () => other.rename("one", "two"));
    await refuses("in-use", ["one"], () => other.delete("one"));
    await refuses("in-use", ["one"], () => runs.delete("one"));
    await refuses("invalid-options", ["one"], () => other.create("one"));
    await refuses("invalid-options", ["nothing"], () => runs.open("nothing"));
    for (const wrong of ["", "a/b", "..", "/tmp/runs", 3]) {
      await refuses("invalid-options", ["letters", "option folder"], () => context.open(wrong));
    }
    await refuses("invalid-options", ["text"], () => runs.create("three", { text: "" }));
    await refuses("invalid-options", ["step"], () => run.addSample({ text: "" }));
    await runs.rename("one", "two");
    equal(run.name, "two", "the open run's name");
    await run.close();
    await run.close();
    const opened = await other.open("two");
    await opened.close();
    equal(
      (await other.list()).map(({ name }) => name),
      ["two"],
    );
    await other.delete("two");
    const { trainer, data, model } = await fresh(context);
    const wrong = (checkpoint) => collect(trainer.run(data, { steps: 1, checkpoint }));
    await refuses("invalid-options", ["checkpoint"], () => wrong({ every: 2 }));
    await model.free();
  },

  async "a trainer without snapshots in memory comes back from its run's checkpoint"(context) {
    const { tinyloom, options = {}, throughWorker, sample } = context;
    if (throughWorker || sample) return; // the same code as in Node, and devices are lost in other tests
    const states = [];
    const recover = { snapshotBytes: 0, onState: (state) => states.push(state) };
    const runtime = await tinyloom.Runtime.create({ ...options, recover });
    const { trainer, data } = await fresh(context);
    const whole = lossesOf(await collect(trainer.run(data, { until: 9 })));
    await trainer.model.free();
    const own = await fresh({ tinyloom, runtime });
    const runs = await context.open("instead");
    const run = await runs.create("one");
    const checkpoint = { run, every: 3 };
    const found = [];
    const seen = [];
    for await (const metrics of own.trainer.run(data, { until: 9, checkpoint })) {
      found.push(metrics.loss);
      if (metrics.recovered) seen.push([metrics.step, metrics.recovered.fromStep]);
      if (metrics.step === 5) runtime.simulateLoss();
    }
    equal(found, whole, "losses");
    equal(seen.length, 1, "recoveries told");
    equal(seen[0][1], 3, "the step that it came back from");
    const names = states.map(({ state }) => state);
    equal(names.filter((state) => /different|failed/.test(state)).length, 0, `${names}`);
    ok(names.includes("snapshots-off"), "it says that memory has none");
    await run.close();
    runtime.simulateLoss();
    await refuses("device-lost", ["closed"], () => own.trainer.save());
    await runtime.destroy();
    await runs.delete("one");
  },

  async "two trainers that save into one run at once leave two whole checkpoints"(context) {
    const runs = await context.open("at-once");
    const run = await runs.create("one");
    const one = await fresh(context);
    const other = await fresh(context);
    await collect(one.trainer.run(one.data, { steps: 1 }));
    await Promise.all([one.trainer.save({ to: run }), other.trainer.save({ to: run })]);
    const whole = await run.checkpoints();
    equal(whole.map(({ number }) => number).sort(), [1, 2], "numbers");
    equal(whole.map(({ step }) => step).sort(), [0, 1], "steps");
    equal(await stepOf(context, run), whole[0].step, "the step of the newest");
    equal(run.problems ?? [], [], "problems");
    // A run that is closed meanwhile has the save that was begun, and none that was not.
    const saves = [one.trainer.save({ to: run }), run.close(), other.trainer.save({ to: run })];
    const ends = await Promise.allSettled(saves);
    for (const { reason } of ends) if (reason) equal(reason.code, "freed", reason.stack);
    const again = await runs.open("one");
    ok((await stepOf(context, again)) <= 1, "it resumes");
    await again.close();
    for (const { model } of [one, other]) await model.free();
    await runs.delete("one");
  },

  async "a model saved into a run leaves the trainer's checkpoints, which resume"(context) {
    const { open, tinyloom, runtime } = context;
    const runs = await open("kinds");
    const run = await runs.create("one");
    const { trainer, data, model } = await fresh(context);
    await refuses("invalid-checkpoint", ["none yet"], () => tinyloom.Trainer.resume(runtime, run));
    await model.save({ to: run });
    await refuses("invalid-checkpoint", ["trainer_state.json", "trainer.save"], () =>
      tinyloom.Trainer.resume(runtime, run),
    );
    await collect(trainer.run(data, { steps: 2, checkpoint: { run, every: 1 } }));
    for (let i = 0; i < 3; i++) await model.save({ to: run });
    const steps = (await run.checkpoints()).map(({ step }) => step);
    equal(steps, [null, null, 2, 1], "the newest of each kind stay");
    equal(await stepOf(context, run), 2);
    const loaded = await tinyloom.Model.fromPretrained(runtime, run);
    await loaded.free();
    await run.close();
    const files = await runs.export("one");
    ok(files["trainer_state.json"], "what is exported resumes");
    await model.free();
    await runs.delete("one");
  },

  async "a save keeps as many checkpoints as the run was asked to"(context) {
    const runs = await context.open("keep");
    let run = await runs.create("one");
    const { trainer, data, model } = await fresh(context);
    const steps = async () => (await run.checkpoints()).map(({ step }) => step);
    await collect(trainer.run(data, { steps: 4, checkpoint: { run, every: 1, keep: 10 } }));
    await trainer.save({ to: run });
    equal(await steps(), [4, 4, 3, 2, 1]);
    await run.close();
    run = await runs.open("one");
    await collect(trainer.run(data, { steps: 1, checkpoint: { run } }));
    equal(await steps(), [5, 4, 4, 3, 2, 1], "when it was opened again");
    await collect(trainer.run(data, { steps: 1, checkpoint: { run, keep: 2 } }));
    equal(await steps(), [6, 5], "when it was asked for fewer");
    await run.close();
    await model.free();
    await runs.delete("one");
  },

  async "a run's options are JSON, and a copy"({ open, throughWorker }) {
    const runs = await open("options");
    const around = {};
    around.around = around;
    for (const [word, options] of [
      ["decode is a function", { tokenizer: { decode: () => "" } }],
      ["options is a function", () => 1],
      ["seed is 4n", { seed: 4n }],
      ["labels is an object (Map)", { labels: new Map([["a", 1]]) }],
      ["tokens is an object (Uint8Array)", { tokens: new Uint8Array(2) }],
      ["rate is NaN", { deep: [{ rate: Number.NaN }] }],
      ["rate is Infinity", { rate: Number.POSITIVE_INFINITY }],
      ["options is NaN", Number.NaN],
      ["began is an object (Date)", { began: new Date(0) }],
      ["1 is undefined", { list: [1, undefined] }],
      ["options is not JSON", around],
    ]) {
      const words = ["runs.create", word, "give what JSON can hold"];
      await refuses("invalid-options", words, () => runs.create("one", { options }));
    }
    equal(await runs.list(), [], "nothing was made");
    // What passes through a worker is a copy without these, or is not cloned at all.
    if (!throughWorker) {
      for (const [word, options] of [
        ["own is an object", { own: { toJSON: () => 1 } }],
        ["own is an object", { own: { [Symbol("a")]: 1 } }],
        ["list is an array", { list: Object.assign([1], { more: 2 }) }],
        ["list is an array", { list: Array(2) }], // of holes
      ]) {
        await refuses("invalid-options", [word, "JSON"], () => runs.create("one", { options }));
      }
    }
    const options = { deep: { list: [1, null, "two"] }, left: undefined, rate: -0 };
    const run = await runs.create("one", { options });
    options.deep.list.push(4);
    const kept = { deep: { list: [1, null, "two"] }, rate: 0 };
    equal(run.options, kept);
    await run.close();
    equal((await runs.list())[0].options, kept, "when it is read again");
    await runs.delete("one");
  },

  async "samples are copies, JSON, and in the order of their steps"(context) {
    const runs = await context.open("samples");
    const run = await runs.create("one");
    const { trainer, data, model } = await fresh(context);
    const sample = { step: 5, text: "five" };
    await run.addSample(sample);
    [sample.text, sample.step] = ["changed", "x"];
    await run.addSample({ step: 3, text: "three" });
    await run.addSample({ step: 5, text: "five again" });
    const around = { step: 1 };
    around.around = around;
    const few = [10n, () => "x", Number.NaN, new Date(0)];
    for (const wrong of [...few.map((text) => ({ step: 1, text })), around]) {
      await refuses("invalid-options", ["addSample", "JSON"], () => run.addSample(wrong));
    }
    for (const wrong of [undefined, null, 4, "x", {}, { step: -1 }, { step: 0.5 }, []]) {
      await refuses("invalid-options", ["addSample", "step"], () => run.addSample(wrong));
    }
    const kept = ["three", "five", "five again"];
    const texts = async (from) => (await from.samples()).map((one) => one.text);
    equal(await texts(run), kept);
    await collect(trainer.run(data, { steps: 1, checkpoint: { run } }));
    equal((await run.checkpoints()).length, 1, "checkpoints after the refusals");
    await run.close();
    const again = await runs.open("one");
    equal(await texts(again), kept, "when it is opened again");
    await again.close();
    await model.free();
    await runs.delete("one");
  },

  async "of two that take one name at once, one has it"({ open }) {
    const runs = await open("one-name");
    const other = await open("one-name");
    const names = async () => (await runs.list()).map(({ name }) => name).sort();
    const both = async (...works) => {
      const ends = await Promise.allSettled(works.map((work) => work()));
      const failed = ends.filter(({ status }) => status === "rejected");
      equal(failed.length, 1, "refusals");
      ok(/^(invalid-options|in-use)$/.test(failed[0].reason.code), failed[0].reason.stack);
      for (const { value } of ends) await value?.close();
    };
    for (const second of [runs, other]) {
      await both(
        () => runs.create("one", { data: "1" }),
        () => second.create("one", { data: "2" }),
      );
      equal(await names(), ["one"]);
      const next = await runs.create("two");
      await next.close();
      await both(
        () => runs.rename("one", "same"),
        () => second.rename("two", "same"),
      );
      await both(
        () => runs.open("same"),
        () => second.open("same"),
      );
      for (const name of await names()) await runs.delete(name);
    }
    const run = await runs.create("one");
    await refuses("in-use", ["another Runs of this page"], () => other.open("one"));
    await run.close();
    await runs.delete("one");
  },
};

/** What a case gives, or an error where it does not end, so that the others still run. */
function ended(work) {
  let timer;
  const late = new Promise((_, fail) => {
    timer = setTimeout(() => fail(new Error(`it did not end in ${LIMIT / 1000} s`)), LIMIT);
  });
  return Promise.race([work, late]).finally(() => clearTimeout(timer));
}

/** Runs the cases; gives `[{ name, ok, detail, milliseconds }]`. */
export async function runStorage(context) {
  const runtime = await context.tinyloom.Runtime.create(context.options ?? {});
  const results = [];
  for (const [name, work] of Object.entries(cases)) {
    const began = performance.now();
    const result = { name, ok: true, detail: "" };
    try {
      result.detail = (await ended(work({ ...context, runtime }))) ?? "";
    } catch (error) {
      result.ok = false;
      result.detail = `${error?.code ?? ""} ${error?.stack ?? error}`;
    }
    result.milliseconds = Math.round(performance.now() - began);
    results.push(result);
  }
  await runtime.destroy();
  return results;
}

/** The origin-private file system as the cases damage it. */
export const originDisk = {
  async list(app) {
    const found = [];
    const walk = async (folder, prefix) => {
      for await (const [name, handle] of folder.entries()) {
        if (handle.kind === "directory") await walk(handle, `${prefix}${name}/`);
        else found.push(prefix + name);
      }
    };
    await walk(await folderOf([app]), "");
    return found;
  },
  async read(app, path) {
    const file = await (await handleOf(app, path)).getFile();
    return new Uint8Array(await file.arrayBuffer());
  },
  async write(app, path, bytes) {
    const stream = await (await handleOf(app, path, true)).createWritable();
    await stream.write(bytes);
    await stream.close();
  },
  async remove(app, path) {
    const names = path.split("/");
    const folder = await folderOf([app, ...names.slice(0, -1)]);
    await folder.removeEntry(names.at(-1), { recursive: true });
  },
  async folder(app, path) {
    const names = path.split("/");
    const folder = await folderOf([app, ...names.slice(0, -1)]);
    await folder.getDirectoryHandle(names.at(-1), { create: true });
  },
};

async function folderOf(names) {
  let folder = await navigator.storage.getDirectory();
  for (const name of ["tinyloom", ...names]) folder = await folder.getDirectoryHandle(name);
  return folder;
}

async function handleOf(app, path, create = false) {
  const names = path.split("/");
  return (await folderOf([app, ...names.slice(0, -1)])).getFileHandle(names.at(-1), { create });
}
