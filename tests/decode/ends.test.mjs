// What ends a text by default: what the model's files, the caller's config and the tokenizer name, and nothing else.
import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import {
  collect,
  gpu,
  greedy,
  ids,
  internal,
  json,
  newModel,
  parsed,
  refuses,
  runtime,
  tinyloom,
} from "./kit.mjs";

const { Adapter, Model, Trainer } = tinyloom;
const prompt = [7, 8];
const source = await newModel();
const files = await source.save();
const all = ids(await collect(source.generate(prompt, greedy)));
/** Tokens that come late and not before, so that each cuts the text at a place of its own. */
const firsts = all
  .map((token, at) => [token, at])
  .filter(([token, at]) => all.indexOf(token) === at);
const [[near, at], [far, farther]] = firsts.slice(-2);

const drawn = async (model, options = {}) =>
  ids(await collect(model.generate(prompt, { maxTokens: 12, temperature: 0, ...options })));

/** The files with fields of the config changed, and a generation config. */
const changed = (fields, generation) => ({
  ...files,
  "config.json": json({ ...parsed(files["config.json"]), ...fields }),
  ...(generation && { "generation_config.json": json(generation) }),
});

const tokenizer = (endToken) => ({
  endToken,
  decoder: () => ({ push: (id) => `${id} `, end: () => "" }),
});

test("the greedy text is long enough to be cut at two places", () => {
  assert.equal(all.length, 12);
  assert.ok(at >= 2 && farther > at, `${all}`);
});

test("a default of the class that nobody wrote ends nothing", async () => {
  const model = await Model.create(runtime, {
    vocab_size: 256,
    hidden_size: 32,
    num_attention_heads: 2,
    num_hidden_layers: 1,
    intermediate_size: 64,
  });
  assert.equal(internal.models.of(model).notes.ends.length, 0);
  model.free();
  assert.deepEqual(await drawn(source), all);
});

for (const [name, given, cut] of [
  ["a number in config.json", changed({ eos_token_id: near }), at],
  ["a list in config.json", changed({ eos_token_id: [far, near] }), at],
  ["generation_config.json", changed({}, { eos_token_id: [near], temperature: 0.6 }), at],
  [
    "both files, of which either may come first",
    changed({ eos_token_id: near }, { eos_token_id: far }),
    at,
  ],
  ["the other way round", changed({ eos_token_id: far }, { eos_token_id: near }), at],
  [
    "null, -1 and ids beyond the vocabulary",
    changed({ eos_token_id: [-1, 999] }, { eos_token_id: null }),
    12,
  ],
]) {
  test(`a text ends by ${name}`, async () => {
    const model = await Model.fromPretrained(runtime, given);
    assert.deepEqual(await drawn(model), all.slice(0, cut));
    assert.deepEqual(await drawn(model, { stopTokens: [] }), all, "switched off");
    assert.deepEqual(await drawn(model, { stopTokens: [far] }), all.slice(0, farther), "replaced");
    const batch = await collect(
      model.generateBatch([prompt, { prompt, stopTokens: [] }], { maxTokens: 12, temperature: 0 }),
    );
    const text = (index) => ids(batch.filter((one) => one.index === index));
    assert.deepEqual(text(0), all.slice(0, cut), "in a batch");
    assert.deepEqual(text(1), all, "of a prompt that has its own");
    model.free();
  });
}

test("a text ends by the caller's config, also where it is nested", async () => {
  for (const fields of [{ eos_token_id: near }, { eos_token_id: [near, far] }]) {
    const model = await newModel(fields);
    assert.deepEqual(await drawn(model), all.slice(0, at));
    model.free();
  }
  const { notesOf } = await import("../../pkg/dist/notes.js");
  const nested = notesOf(JSON.stringify({ text_config: { eos_token_id: [3, 4] } }), undefined);
  assert.deepEqual(nested.ends, [3, 4]);
  assert.deepEqual(
    JSON.parse(nested.generation),
    { eos_token_id: [3, 4] },
    "a flat config lacks it",
  );
});

test("a text ends by the tokenizer's end, beside the model's", async () => {
  const model = await Model.fromPretrained(runtime, changed({ eos_token_id: far }));
  assert.deepEqual(await drawn(model), all.slice(0, farther));
  assert.deepEqual(await drawn(model, { tokenizer: tokenizer(near) }), all.slice(0, at));
  assert.deepEqual(await drawn(model, { tokenizer: tokenizer(undefined) }), all.slice(0, farther));
  assert.deepEqual(await drawn(model, { tokenizer: tokenizer(near), stopTokens: [] }), all);
  model.free();
});

test("files on a disk and on a server are read, and what is not there is left out", async () => {
  const given = changed({}, { eos_token_id: near });
  const folder = await mkdtemp(join(tmpdir(), "ends-"));
  for (const [name, bytes] of Object.entries(given)) await writeFile(join(folder, name), bytes);
  const onDisk = await Model.fromPretrained(runtime, pathToFileURL(folder));
  assert.deepEqual(await drawn(onDisk), all.slice(0, at));
  onDisk.free();
  await rm(folder, { recursive: true });
  /** How a server answers to what it has not. */
  for (const missing of [
    (answer) => answer.writeHead(404).end(),
    (answer) => answer.writeHead(403).end("AccessDenied"),
    (answer) => answer.writeHead(200, { "content-type": "text/html" }).end("<!doctype html><p>app"),
    undefined,
  ]) {
    const server = createServer(({ url }, answer) => {
      const name = url.slice(1);
      if (!given[name] || (missing && name === "generation_config.json")) {
        return missing ? missing(answer) : answer.writeHead(404).end();
      }
      answer.writeHead(200, { "content-length": given[name].length }).end(given[name]);
    });
    await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
    const model = await Model.fromPretrained(runtime, `http://127.0.0.1:${server.address().port}/`);
    assert.deepEqual(await drawn(model), missing ? all : all.slice(0, at), `${missing}`);
    model.free();
    server.closeAllConnections();
    server.close();
  }
});

test("a damaged generation config is refused by name", () =>
  refuses("invalid-config", ["generation_config.json", "not JSON"], () =>
    Model.fromPretrained(runtime, {
      ...files,
      "generation_config.json": new TextEncoder().encode("{"),
    }),
  ));

test("save, saveMerged, a trainer's files and a resumed run keep it, as it was written", async () => {
  const given = changed({}, { eos_token_id: [near], do_sample: true, top_p: 0.9 });
  const model = await Model.fromPretrained(runtime, given);
  const kept = (saved) =>
    assert.deepEqual(saved["generation_config.json"], given["generation_config.json"]);
  kept(await model.save());
  const adapter = await Adapter.create(model);
  kept(await adapter.saveMerged(given));
  assert.equal((await adapter.save())["generation_config.json"], undefined);
  adapter.free();
  const trainer = await Trainer.create(model, { tokensPerStep: 32 });
  const saved = await trainer.save();
  kept(saved);
  const resumed = await Trainer.resume(runtime, saved);
  assert.deepEqual(await drawn(resumed.model), all.slice(0, at));
  kept(await resumed.save());
  resumed.model.free();
  model.free();
  assert.equal((await source.save())["generation_config.json"], undefined, "none is made up");
});

test("of the caller's own streams, one of that name takes it", async () => {
  const given = changed({}, { eos_token_id: near });
  const model = await Model.fromPretrained(runtime, given);
  const streams = (...names) => {
    const written = {};
    const write = (name) => (bytes) => {
      written[name] = [...(written[name] ?? []), ...bytes];
    };
    const to = Object.fromEntries(
      names.map((name) => [name, new WritableStream({ write: write(name) })]),
    );
    return { to, written };
  };
  const with_ = streams("config.json", "model.safetensors", "generation_config.json");
  await model.save({ to: with_.to });
  assert.deepEqual(
    Uint8Array.from(with_.written["generation_config.json"]),
    given["generation_config.json"],
  );
  const without = streams("config.json", "model.safetensors");
  await model.save({ to: without.to });
  assert.deepEqual(Object.keys(without.written).sort(), ["config.json", "model.safetensors"]);
  const inFolder = new Map();
  const directory = {
    getFileHandle: async (name) => ({
      getFile: async () => new Blob(),
      createWritable: async () =>
        new WritableStream({
          write: (given) => void (given.type || inFolder.set(name, given.slice())),
        }),
    }),
  };
  await model.save({ to: directory });
  assert.deepEqual(
    Uint8Array.from(inFolder.get("generation_config.json")),
    given["generation_config.json"],
    "in a directory",
  );
  model.free();
});

test("a stored run keeps it, and so does its export", async () => {
  const { Runs } = await import("tinyloom/storage");
  const folder = await mkdtemp(join(tmpdir(), "ends-"));
  const runs = await Runs.open("ends", { folder });
  const given = changed({}, { eos_token_id: near });
  const model = await Model.fromPretrained(runtime, given);
  const trainer = await Trainer.create(model, { tokensPerStep: 32 });
  const run = await runs.create("first");
  await trainer.save({ to: run });
  const endsOf = async (stored) => {
    const resumed = await Trainer.resume(runtime, stored);
    const tokens = await drawn(resumed.model);
    resumed.model.free();
    return tokens;
  };
  assert.deepEqual(await endsOf(run), all.slice(0, at));
  await run.close();
  const exported = await runs.export("first");
  const again = await runs.import(exported, "second");
  assert.deepEqual(await endsOf(again), all.slice(0, at), "after an export and an import");
  await again.close();
  await model.free();
  await rm(folder, { recursive: true });
});

test("a model that came back from a lost device ends as before", async () => {
  const own = await tinyloom.Runtime.create({ gpu, recover: true });
  const model = await Model.fromPretrained(own, changed({}, { eos_token_id: near }));
  own.device.destroy();
  assert.deepEqual(await drawn(model), all.slice(0, at));
  model.free();
  own.destroy();
});
