// Models whose layers say what they are, of each architecture in the list: they train, resume, decode, save and load, and
// transformers computes the same of what `save` writes, and tinyloom of what transformers writes.
// reads: crates/kernels/src/testing/architectures.json tests/reference/check_architectures.py tests/decode/kit.mjs tests/decode/served.mjs
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { Worker } from "node:worker_threads";
import { root, target } from "../../scripts/lib.mjs";
import { referencePython } from "../../scripts/reference.mjs";
import { collect, ids, parsed, refuses, runtime, tinyloom } from "../decode/kit.mjs";

const { Adapter, Model, Trainer } = tinyloom;
const list = join(root, "crates/kernels/src/testing/architectures.json");
const architectures = Object.entries(JSON.parse(readFileSync(list, "utf8")));
const folder = join(target, "architectures");

const sizes = {
  model_type: "tinyloom",
  vocab_size: 61,
  hidden_size: 32,
  intermediate_size: 48,
  num_hidden_layers: 4,
  num_attention_heads: 2,
  max_position_embeddings: 64,
  // So large that greedy tokens are not all the same one.
  initializer_range: 0.2,
};
const tokens = Uint32Array.from({ length: 24 }, (_, i) => (i * i * 7 + 3 * i) % 61);
const batch = (shift) => ({
  tokens: tokens.map((token) => (token + shift) % 61),
  targets: tokens.map((token) => (3 * token + shift) % 61),
});
const rate = { learningRate: 2e-3, tokensPerStep: 24, seed: 3 };
const greedy = { maxTokens: 12, temperature: 0, stopTokens: [] };
const TOLERANCE = 1e-4;

/** The largest difference of two lists. */
function apart(got, expected) {
  assert.equal(got.length, expected.length);
  return got.reduce((most, value, i) => Math.max(most, Math.abs(value - expected[i])), 0);
}

/** The likeliest token behind each text of a prompt with the tokens that follow, by whole forward passes. */
async function likeliest(model, prompt, following) {
  const text = [...prompt, ...following];
  const logits = await model.logits(Uint32Array.from(text));
  return following.map((_, i) => {
    const row = logits.subarray((prompt.length + i - 1) * 61, (prompt.length + i) * 61);
    return row.indexOf(Math.max(...row));
  });
}

rmSync(folder, { recursive: true, force: true });

for (const [name, fields] of architectures) {
  test(name, async () => {
    const model = await Model.create(runtime, { ...sizes, ...fields }, { seed: 5 });
    const trainer = await Trainer.create(model, rate);
    const losses = [];
    for (let i = 0; i < 6; i++) losses.push((await trainer.step(batch(i % 2))).loss);
    assert.ok(losses[5] < losses[1], `${losses}`);
    // A resumed run equals one that went on.
    const kept = await trainer.save();
    const loss = (await trainer.step(batch(0))).loss;
    const again = await Trainer.resume(runtime, kept);
    assert.equal((await again.step(batch(0))).loss, loss);
    // Decoding is what whole forward passes give, alone and in a batch.
    const prompt = [...tokens.subarray(0, 8)];
    const following = ids(await collect(model.generate(prompt, greedy)));
    assert.deepEqual(following, await likeliest(model, prompt, following));
    const others = [prompt, [...prompt].reverse(), [1, 2, 3]];
    const together = others.map(() => []);
    for await (const { index, token } of model.generateBatch(others, greedy))
      together[index].push(token);
    assert.deepEqual(together[0], following);
    // What is saved loads as the same model.
    const files = await model.save();
    assert.equal(
      parsed(files["config.json"]).auto_map.AutoConfig,
      "modeling_tinyloom.TinyloomConfig",
    );
    const loaded = await Model.fromPretrained(runtime, files);
    const logits = await model.logits(tokens);
    assert.deepEqual(await loaded.logits(tokens), logits);
    const own = join(folder, name);
    mkdirSync(own, { recursive: true });
    for (const [file, bytes] of Object.entries(files)) writeFileSync(join(own, file), bytes);
    const told = { tokens: [...tokens], logits: [...logits], text: [] };
    told.text = ids(await collect(model.generate([...tokens], greedy)));
    writeFileSync(join(own, "told.json"), JSON.stringify(told));
    for (const one of [again, loaded]) (one.model ?? one).free();
  });
}

test("packed matrices and adapters", async () => {
  for (const name of ["all kinds", "norm of sums", "feed-forward only"]) {
    const fields = Object.fromEntries(architectures)[name];
    const source = await Model.create(runtime, { ...sizes, ...fields }, { seed: 6 });
    const files = await source.save();
    for (const weights of ["f16", "int8", "int4"]) {
      const model = await Model.fromPretrained(runtime, files, { weights });
      const prompt = [5, 6, 7];
      const following = ids(await collect(model.generate(prompt, greedy)));
      assert.deepEqual(
        following,
        await likeliest(model, prompt, following),
        `${name} in ${weights}`,
      );
      const adapter = await Adapter.create(model, { rank: 4 });
      const trainer = await Trainer.create(adapter, rate);
      const losses = [];
      for (let i = 0; i < 6; i++) losses.push((await trainer.step(batch(0))).loss);
      assert.ok(losses[5] < losses[0], `${name} in ${weights}: ${losses}`);
      model.free();
    }
    source.free();
  }
});

const MIXED = ["all kinds", "norm of sums", "own heads", "soft caps"];

test("mixed precision trains what f32 does, and goes on to the bit", async () => {
  for (const name of MIXED) {
    const fields = Object.fromEntries(architectures)[name];
    const run = async (precision) => {
      const model = await Model.create(runtime, { ...sizes, ...fields }, { seed: 5 });
      const trainer = await Trainer.create(model, { ...rate, precision });
      const losses = [];
      for (let i = 0; i < 6; i++) losses.push((await trainer.step(batch(i % 2))).loss);
      return { trainer, losses };
    };
    const [f32, mixed] = [await run("f32"), await run("mixed")];
    assert.notDeepEqual(mixed.losses, f32.losses, `${name}: nothing is rounded`);
    for (const [i, loss] of mixed.losses.entries()) {
      const wanted = f32.losses[i];
      assert.ok(Math.abs(loss - wanted) < 0.01 * wanted, `${name}: ${mixed.losses}, ${f32.losses}`);
    }
    const kept = await mixed.trainer.save();
    const { loss } = await mixed.trainer.step(batch(0));
    const again = await Trainer.resume(runtime, kept);
    assert.equal((await again.step(batch(0))).loss, loss, name);
    for (const { model } of [f32.trainer, mixed.trainer, again]) model.free();
  }
});

test("in a worker they are what they are here, to the bit", async (t) => {
  const { connect } = await import("tinyloom/worker");
  const thread = new Worker(new URL("../decode/served.mjs", import.meta.url));
  t.after(() => thread.terminate());
  const remote = await connect({ worker: thread });
  const there = await remote.Runtime.create();
  for (const name of MIXED) {
    const fields = Object.fromEntries(architectures)[name];
    const run = async (parts, on) => {
      const model = await parts.Model.create(on, { ...sizes, ...fields }, { seed: 5 });
      const trainer = await parts.Trainer.create(model, rate);
      const losses = [];
      for (let i = 0; i < 3; i++) losses.push((await trainer.step(batch(i))).loss);
      const text = ids(await collect(model.generate([5, 6, 7], greedy)));
      const { residual, attention } = await model.capture(tokens, {
        residual: true,
        attention: true,
      });
      const files = await model.save();
      await model.free();
      return { losses, text, residual, attention, files };
    };
    const [far, here] = [await run(remote, there), await run(tinyloom, runtime)];
    assert.deepEqual(far, here, name);
    assert.ok("modeling_tinyloom.py" in far.files, `${name}: ${Object.keys(far.files)}`);
  }
  await remote.close();
});

test("there is no GGUF of them, in a sentence", async () => {
  const model = await Model.create(runtime, { ...sizes, layers: [{}, { mlp: false }] });
  const words = ["no GGUF of model_type", "tinyloom", "llama.cpp does not know it"];
  await refuses("invalid-options", words, () => model.save({ format: "gguf" }));
  model.free();
});

test("attention of a layer without it is refused by its number", async () => {
  const model = await Model.create(runtime, { ...sizes, layers: [{}, { attention: false }] });
  await refuses("invalid-options", ["layer is 1", "no attention"], () =>
    model.attention(Uint32Array.of(1, 2), { layer: 1, head: 0 }),
  );
  model.free();
});

test("transformers computes what tinyloom does, and tinyloom what transformers does", {
  timeout: 600_000,
}, async (t) => {
  const program = join(root, "tests/reference/check_architectures.py");
  // Remote code is copied to a cache, which is ours.
  const env = {
    ...process.env,
    CUDA_VISIBLE_DEVICES: "",
    HF_HOME: join(target, "architectures-cache"),
  };
  const said = await promisify(execFile)(await referencePython(), [program, folder], { env });
  const compared = JSON.parse(said.stdout);
  assert.deepEqual(Object.keys(compared).sort(), architectures.map(([name]) => name).sort());
  for (const [name, { logits, text }] of Object.entries(compared)) {
    assert.ok(logits <= TOLERANCE, `${name}: logits are ${logits} apart`);
    assert.ok(text, `${name}: another greedy text`);
    const made = join(folder, name, "made");
    const model = await Model.fromPretrained(runtime, made);
    const told = JSON.parse(readFileSync(join(made, "told.json"), "utf8"));
    const back = apart(await model.logits(Uint32Array.from(told.tokens)), told.logits);
    assert.ok(back <= TOLERANCE, `${name}: logits of a model from transformers are ${back} apart`);
    assert.deepEqual(ids(await collect(model.generate(told.tokens, greedy))), told.text, name);
    t.diagnostic(`${name}: ${logits.toExponential(1)} out, ${back.toExponential(1)} in`);
    model.free();
  }
});
