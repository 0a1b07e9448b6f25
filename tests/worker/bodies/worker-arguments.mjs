// Through `connect()`: what a call is given goes there, functions of the page, streams, handles and shared memory too.
import { equal, ok, refuses, sameFiles } from "../../api/bodies/assert.mjs";
import {
  batch,
  collect,
  concat,
  config,
  datasetOptions,
  inSharedMemory,
  pause,
  soon,
  text,
  trainerOptions,
} from "../../api/bodies/kit.mjs";
import { make, withoutTime } from "./worker-kit.mjs";

/** Handles of files go to the worker, which writes and reads them itself. Node has none. */
async function throughHandles(tinyloom, runtime, model, files) {
  if (typeof globalThis.navigator?.storage?.getDirectory !== "function") return;
  const root = await navigator.storage.getDirectory();
  const handles = {};
  for (const name of Object.keys(files)) {
    handles[name] = await root.getFileHandle(`worker-${name}`, { create: true });
  }
  await model.save({ to: handles });
  const loaded = await tinyloom.Model.fromPretrained(runtime, handles);
  sameFiles(await loaded.save(), files, "files of handles");
  await loaded.free();
  for (const name of Object.keys(files)) await root.removeEntry(`worker-${name}`);
}

export const given = {
  async "a picked folder goes to the worker with the paths of its files"({ tinyloom, runtime }) {
    const model = await tinyloom.Model.create(runtime, config, { seed: 42 });
    const files = await model.save();
    const picked = Object.entries(files).map(([name, bytes]) => {
      const file = new File([bytes], name);
      return Object.defineProperty(file, "webkitRelativePath", { value: `models/mine/${name}` });
    });
    const hidden = new File(["x"], ".DS_Store");
    Object.defineProperty(hidden, "webkitRelativePath", { value: "models/.DS_Store" });
    const loaded = await tinyloom.Model.fromPretrained(runtime, [hidden, ...picked]);
    sameFiles(await loaded.save(), files, "of a picked folder");
    for (const one of [loaded, model]) await one.free();
  },

  async "memory that threads share is copied on its way to the worker"({ tinyloom, runtime }) {
    const model = await tinyloom.Model.create(runtime, config, { seed: 42 });
    const { tokens } = batch(16);
    const bias = new Float32Array(config.vocab_size).fill(-50);
    bias[7] = 50;
    const options = { maxTokens: 3, temperature: 0 };
    const calls = {
      loss: [(ids) => model.loss(ids), tokens],
      bias: [(bias) => collect(model.generate(tokens, { ...options, bias })), bias],
    };
    for (const [name, [call, array]] of Object.entries(calls)) {
      const expected = await call(array);
      const shared = inSharedMemory(array);
      const result = call(shared);
      shared.fill(0);
      equal(await result, expected, name);
    }
    await model.free();
  },

  async "a step's own objective, scores and a gradient function are as they are here"({
    tinyloom,
    direct,
    runtime,
    gpu,
  }) {
    const here = await direct.Runtime.create({ gpu });
    const { tokens, targets } = batch(16);
    let calls = 0;
    const gradient = async ({ logits, rows }) => {
      calls += 1;
      return { gradient: logits.map((x) => x / 256), loss: rows };
    };
    const ofStates = ({ states, rows, hidden }) => ({ gradient: states, loss: rows * hidden });
    const program = async (api, on) => {
      const trainer = await make(api, on);
      const asked = { temperature: 2, entropy: true, top: 3 };
      const scores = await trainer.model.score(tokens, asked);
      const { ids, probabilities } = scores.top;
      const soft = { ids, probabilities, temperature: 2, share: 0.5 };
      const targetWeights = Float32Array.from(tokens, (_, i) => (i % 3) - 1);
      const steps = [
        await trainer.step({ tokens, targets, targetWeights, normalize: "weights", soft }),
        await trainer.step({ tokens, gradient, normalize: 16 }),
        await trainer.step({ tokens, gradient: ofStates, gradientBy: "states" }),
      ];
      const failing = () => {
        throw new RangeError("in the page");
      };
      const failed = () => trainer.step({ tokens, gradient: failing });
      await refuses("invalid-options", "in the page", failed);
      await trainer.model.free();
      return [scores, ...steps.map(withoutTime)];
    };
    equal(await program(tinyloom, runtime), await program(direct, here));
    equal(calls, 2);
    const trainer = await make(tinyloom, runtime);
    const buffer = here.device.createBuffer({ size: 16 * 256 * 4, usage: 4 }); // COPY_SRC
    await refuses("invalid-options", ["GPUBuffer", "cannot go to the worker"], () =>
      trainer.step({ tokens, gradient: () => ({ gradient: buffer, loss: 0 }) }),
    );
    await trainer.model.free();
    here.destroy();
  },

  async "a generation asks a function of the page for its bias"({ tinyloom, runtime }) {
    const seen = [];
    const biased = await tinyloom.Model.create(runtime, config, { seed: 5 });
    const bias = (tokens) => {
      seen.push(tokens.length);
      return [[40 + seen.length, 1000]];
    };
    const steps = await collect(biased.generate([3], { maxTokens: 3, bias, alternatives: 2 }));
    equal(
      steps.map(({ token }) => token),
      [41, 42, 43],
      "biased by a function of the page",
    );
    equal([seen, steps[2].alternatives.length], [[1, 2, 3], 2], "of the tokens so far");
    const dense = new Float32Array(256).fill(Number.NEGATIVE_INFINITY);
    dense[9] = 0;
    const only = await collect(biased.generate([3], { maxTokens: 2, bias: dense }));
    equal(
      only.map(({ token }) => token),
      [9, 9],
      "masked",
    );
    const never = () => new Promise(() => {});
    const controller = new AbortController();
    const { signal } = controller;
    const stopped = biased.generate([3], { bias: never, signal }).next();
    const aborted = refuses("aborted", "generate", () => stopped);
    await pause(20);
    controller.abort();
    await soon("a bias that never comes", aborted);
    const waits = biased.generate([3], { bias: never }).next();
    const freed = refuses("freed", "Model", () => waits);
    await pause(20);
    await biased.free();
    await soon("a model that is freed", freed);
  },

  async "saving and loading report progress, whose errors end them"({ tinyloom, runtime }) {
    const model = await tinyloom.Model.create(runtime, config, { seed: 2 });
    const stages = new Set();
    let last;
    const onProgress = (progress) => {
      stages.add(progress.stage);
      last = progress;
    };
    const files = await model.save({ onProgress });
    equal(last.loaded, last.total, "the end of the saving was reported before its result");
    const same = await tinyloom.Model.fromPretrained(runtime, files, { onProgress });
    equal([...stages].sort(), ["read model.safetensors", "upload"]);
    equal(await same.loss([1, 2, 3]), await model.loss([1, 2, 3]), "loss");
    const bar = { draw: () => undefined }; // as an element of the page: no message can carry it
    await same.save({ onProgress: (progress) => Object.assign(bar, progress) });
    equal(bar.loaded, bar.total, "a callback may give what cannot be cloned");
    const blobs = Object.fromEntries(
      Object.entries(files).map(([name, bytes]) => [name, new Blob([bytes])]),
    );
    await (await tinyloom.Model.fromPretrained(runtime, blobs)).free();
    const stop = () => {
      throw new Error("mine");
    };
    for (const onProgress of [stop, async () => stop()]) {
      await refuses("invalid-options", ["onProgress", "mine"], () => same.save({ onProgress }));
    }
    const pieces = { "config.json": [], "model.safetensors": [] };
    const to = Object.fromEntries(
      Object.entries(pieces).map(([name, list]) => [
        name,
        new WritableStream({ write: (bytes) => void list.push(bytes) }),
      ]),
    );
    await refuses("invalid-options", ["unknown"], () => same.save({ to, unknown: 1 }));
    const locked = Object.values(to).some((stream) => stream.locked);
    equal(locked, false, "streams of a refused save are still locked");
    await same.loss([1, 2], [2, 3], {}, to["config.json"]); // nothing takes the stream
    equal(await same.save({ to }), undefined, "what a save to streams of the page gives");
    const written = Object.entries(pieces).map(([name, list]) => [name, concat(list)]);
    sameFiles(Object.fromEntries(written), files, "streams of the page");
    await throughHandles(tinyloom, runtime, same, files);
    const bytes = files["model.safetensors"];
    const given = tinyloom.transfer(files);
    await (await tinyloom.Model.fromPretrained(runtime, given)).free();
    equal(bytes.length, 0, "what is given away");
    await Promise.all([model.free(), same.free()]);
  },

  async "a tokenizer is trained there, and datasets are read there"({ tinyloom, direct, runtime }) {
    const { BpeTokenizer, Dataset, Tokenizer, Trainer } = tinyloom;
    const stages = new Set();
    const onProgress = ({ stage }) => stages.add(stage);
    const options = { vocabSize: 290 };
    const tokenizer = await BpeTokenizer.train(new Blob([text]), { ...options, onProgress });
    const expected = await direct.BpeTokenizer.train(text, options);
    equal(
      [tokenizer.vocabSize, tokenizer.endToken],
      [expected.vocabSize, expected.endToken],
      "sizes",
    );
    equal([...stages], ["count words", "learn pairs"], "stages");
    const ids = await tokenizer.encode(text);
    equal([...ids], [...expected.encode(text)], "ids");
    equal(await tokenizer.decode(ids), text, "decoded");
    const decoder = await tokenizer.decoder();
    equal((await decoder.push(ids[0])) + (await decoder.end()), expected.decode(ids.slice(0, 1)));
    sameFiles(await tokenizer.save(), expected.save());
    const again = await Tokenizer.fromPretrained(await tokenizer.save());
    equal([...(await again.encode("the cat"))], [...expected.encode("the cat")], "loaded");
    for (const one of [tokenizer, new tinyloom.ByteTokenizer()]) {
      const sized = { ...config, vocab_size: one.vocabSize };
      const told = await tinyloom.Model.create(runtime, sized, { seed: 5 });
      const given = { maxTokens: 12, temperature: 0, tokenizer: one, stopTokens: [] };
      const all = await collect(told.generate([3, 4], given));
      const whole = all.map((token) => token.text).join("");
      ok(whole.length > 4, `a text: ${whole}`);
      const stop = [whole.slice(2, 4)];
      const cut = await collect(told.generate([3, 4], { ...given, stop }));
      const expected = whole.slice(0, whole.indexOf(stop[0]));
      equal(cut.map((token) => token.text).join(""), expected, "ended by a stop string");
      await told.free();
    }
    const data = await Dataset.from(new Blob([text]).stream(), tokenizer, datasetOptions);
    const here = await direct.Dataset.fromText(text, expected, datasetOptions);
    equal([data.tokens, data.hash], [here.tokens, here.hash], "of a stream");
    const listed = await Dataset.fromDocuments(["one", "two"], again, { validationFraction: 0 });
    equal(listed.documents, 2, "documents");
    sameFiles(await data.save(), await here.save());
    const model = await tinyloom.Model.create(runtime, { ...config, vocab_size: 300 });
    const trainer = await Trainer.create(model, trainerOptions);
    await collect(trainer.run(data, { steps: 1 }));
    const resumed = await Trainer.resume(runtime, await trainer.save());
    const words = [data.hash, listed.hash, "dataChanged"];
    await refuses("invalid-options", words, () => collect(resumed.run(listed, { steps: 1 })));
    for (const one of [resumed.model, model]) await one.free();
  },
};
