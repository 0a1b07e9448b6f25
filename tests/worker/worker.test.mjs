// The API through `tinyloom/worker`: in Firefox, and of Node with threads and Chromium, which have one engine and one
// adapter; the core has the first host.
// reads: tests/api/bodies tests/worker tests/reference/fixtures/llama
import assert from "node:assert/strict";
import { mkdtempSync, openAsBlob, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import { Worker } from "node:worker_threads";
import * as main from "tinyloom";
import * as storage from "tinyloom/storage";
import { connect } from "tinyloom/worker";
import { CONFIGS } from "../../bench/workloads.mjs";
import { root } from "../../scripts/lib.mjs";
import { told } from "../child.mjs";
import { coreOf } from "../gate/core.mjs";
import { withPage } from "../lanes/harness.mjs";

const direct = { ...main, ...storage };
const LONG = { timeout: 1_200_000 };

async function report(t, results) {
  for (const { name, ok, detail, milliseconds } of results) {
    await t.test(name, (sub) => {
      sub.diagnostic(`${milliseconds} ms${ok && detail ? `, ${detail}` : ""}`);
      assert.ok(ok, detail);
    });
  }
  assert.ok(results.length > 8, `${results.length} cases`);
}

/** Public names of an object and of what it inherits from. */
function names(object) {
  const found = new Set();
  for (let one = object; one && one !== Object.prototype && one !== Function.prototype; ) {
    for (const name of Object.getOwnPropertyNames(one)) found.add(name);
    one = Object.getPrototypeOf(one);
  }
  const others = typeof object === "function" ? /^(length|name|prototype)$/ : /^constructor$/;
  return [...found].filter((name) => !name.startsWith("_") && !others.test(name));
}

test("every export and member of the API is there", async (t) => {
  const remote = await connect();
  t.after(() => remote.close());
  const types = readFileSync(join(root, "pkg", "dist", "worker", "types.d.ts"), "utf8");
  let members = 0;
  for (const [name, value] of Object.entries(direct)) {
    assert.equal(typeof remote[name], typeof value, name);
    if (typeof value !== "function") {
      assert.deepEqual(remote[name], value, name);
      continue;
    }
    const local = remote[name] === value;
    assert.equal(local, ["ByteTokenizer", "TinyloomError"].includes(name), `${name} is the page's`);
    if (local) continue;
    if (!/^class\b/.test(String(value))) continue; // a function
    assert.match(types, new RegExp(`export type ${name} = Remote<`), `the type ${name}`);
    for (const [here, there] of [
      [value, remote[name]],
      [value.prototype, remote[name].prototype],
    ]) {
      for (const member of names(here)) {
        assert.ok(member in there, `${name}'s ${member}`);
        members += 1;
      }
      for (const symbol of [Symbol.dispose, Symbol.asyncDispose]) {
        if (symbol && symbol in here) assert.ok(symbol in there, `${name}'s ${String(symbol)}`);
      }
    }
  }
  assert.ok(members > 30, `${members} members`);
  const { config } = CONFIGS.tiny;
  const options = { trainer: { tokensPerStep: 64 } };
  const estimated = await remote.estimate(config, options);
  assert.deepEqual(estimated, await direct.estimate(config, options));
});

test("chats in the worker: prompts, what is learned of them, and files in a zip", async (t) => {
  const remote = await connect();
  t.after(() => remote.close());
  const tokenizer = new main.ByteTokenizer();
  const template =
    "{% for m in messages %}{{ m.content }}{{ '?' if m.role == 'user' else '.' }}{% endfor %}";
  const chat = [
    { role: "user", content: "what" },
    { role: "assistant", content: "that" },
  ];
  const options = { template, validationFraction: 0 };
  const data = await remote.Dataset.fromConversations([chat], tokenizer, options);
  const { tokens, learned } = await data.document(0);
  assert.equal(tokenizer.decode(tokens), "what?that.");
  assert.deepEqual([...learned], [0, 0, 0, 0, 0, 1, 1, 1, 1, 1]);
  await assert.rejects(data.document(1), { code: "invalid-options" });
  const prompt = await remote.chatPrompt(chat.slice(0, 1), tokenizer, { template });
  assert.equal(tokenizer.decode(prompt.tokens), "what?");
  assert.deepEqual([prompt.text, prompt.stop], ["what?", ["."]]);
  const dated = { template: "{{ strftime_now('%Y') }}{{ x.y }}", variables: { x: { y: true } } };
  const date = new Date(2031, 0, 1);
  const given = await remote.chatPrompt(chat.slice(0, 1), tokenizer, { ...dated, date });
  assert.equal(given.text, "2031True");
  assert.deepEqual([given.stop, given.stopTokens], [[], []]);
  const learn = (message, index) => message.role === "user" && index === 0;
  const asked = await remote.Dataset.fromConversations([chat], tokenizer, { ...options, learn });
  assert.deepEqual([...(await asked.document(0)).learned], [0, 1, 1, 1, 1, 0, 0, 0, 0, 0]);
  const files = { "a.txt": new Blob(["letters"]), "b.bin": Uint8Array.of(1, 2, 3) };
  const zips = await Promise.all([remote.zip(files), storage.zip(files)]);
  const [there, here] = await Promise.all(zips.map(async (one) => one.arrayBuffer()));
  assert.deepEqual(there, here, "the same archive");
  const text = new TextDecoder("latin1").decode(here);
  for (const part of ["a.txt", "letters", "b.bin", "\u0001\u0002\u0003"]) {
    assert.ok(text.includes(part), `the zip has ${JSON.stringify(part)}`);
  }
  for (const wrong of [{ "a.txt": "letters" }, null]) {
    for (const zip of [remote.zip, storage.zip]) {
      await assert.rejects(zip(wrong), { code: "invalid-options", message: /^zip/ });
    }
  }
});

test("files of the disk: a Blob of one is refused, its URL is read, and those of a run come", async (t) => {
  const remote = await connect();
  t.after(() => remote.close());
  const folder = mkdtempSync(join(tmpdir(), "tinyloom-worker-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const file = join(folder, "text.txt");
  writeFileSync(file, "letters");
  const tokenizer = new main.ByteTokenizer();
  await assert.rejects(remote.Dataset.from(await openAsBlob(file), tokenizer), (error) => {
    for (const word of ["Dataset.from", "fs.openAsBlob", "pathToFileURL", "new Blob"]) {
      assert.ok(error.message.includes(word), error.message);
    }
    return error.code === "invalid-options";
  });
  const options = { validationFraction: 0 };
  const data = await remote.Dataset.from(pathToFileURL(file), tokenizer, options);
  assert.equal(data.tokens, 7);
  const runs = await remote.Runs.open("disk", { folder: join(folder, "runs") });
  const run = await runs.create("one", { data: "letters" });
  assert.equal(await (await run.data()).text(), "letters");
  assert.equal(await (await runs.export("one")).data.text(), "letters");
  const zip = await runs.export("one", { zip: true });
  assert.equal((await zip.arrayBuffer()).byteLength, zip.size);
  await run.close();
});

test("a worker that cannot be opened, or does not answer, is told", async () => {
  const failing = new Worker("throw new Error('mine')", { eval: true });
  await assert.rejects(connect({ worker: failing }), (error) => {
    for (const word of ["mine", "connect({ worker })", "serve()"]) {
      assert.ok(error.message.includes(word), error.message);
    }
    return error.code === "worker-unavailable";
  });
  await assert.rejects(connect({ worker: {} }), { code: "invalid-options" });
  await assert.rejects(connect({ workers: failing }), { code: "invalid-options" });
});

test("a worker that ends ends its calls", async () => {
  const worker = new Worker(new URL("own-worker.mjs", import.meta.url));
  const remote = await connect({ worker });
  const steps = remote.count(1000);
  await steps.next();
  const dataset = await remote.Dataset.fromTokens([1, 2, 3], { validationFraction: 0 });
  await worker.terminate();
  await assert.rejects(dataset.free(), { code: "worker-unavailable" });
  await assert.rejects(steps.next(), { code: "worker-unavailable" });
});

const chosen = coreOf(["node", "chromium", "firefox"], 3);

async function inThread(t) {
  const host = fileURLToPath(new URL("worker-node.mjs", import.meta.url));
  const { messages, printed, code } = await told(host, { signal: t.signal });
  if (printed) process.stderr.write(printed);
  await report(
    t,
    messages.flatMap(({ results }) => results),
  );
  assert.equal(code, 0, `the Node process ended with ${code}`);
}
if (chosen.includes("node")) test("through a thread of Node with Dawn", LONG, inThread);

/** In the page: every case. */
async function runInPage(base) {
  const direct = await import(`${base}/pkg/index.js`);
  const ops = await import(`${base}/pkg/ops.js`);
  const { connect, transfer } = await import(`${base}/pkg/worker/index.js`);
  const { runWorkerBody } = await import(`${base}/tests/worker/bodies/worker-run.mjs`);
  const program = `import { BpeTokenizer } from "${base}/pkg/index.js";
    import * as ops from "${base}/pkg/ops.js";
    import { serve } from "${base}/pkg/worker/index.js";
    import { extra } from "${base}/tests/worker/bodies/worker.mjs";
    serve(extra(ops, BpeTokenizer));`;
  const file = URL.createObjectURL(new Blob([program], { type: "text/javascript" }));
  const own = () => new Worker(file, { type: "module" });
  const results = await runWorkerBody({
    direct: { ...direct, ops },
    connect,
    transfer,
    gpu: navigator.gpu,
    own,
  });
  const { Runtime, Model, close } = await connect();
  const runtime = await Runtime.create({ wasm: await fetch(`${base}/pkg/tinyloom_bg.wasm`) });
  const relative = await Model.fromPretrained(runtime, "tests/reference/fixtures/llama");
  await runtime.destroy();
  await close();
  const missing = new Worker(`${base}/none.js`, { type: "module" });
  const error = await connect({ worker: missing }).catch((one) => one);
  return {
    results,
    relative: relative.config.model_type,
    missing: `${error.code} ${error.message}`,
  };
}

for (const kind of chosen.filter((host) => host !== "node")) {
  test(`in ${kind}`, LONG, async (t) => {
    const errors = [];
    const onConsole = (type, text) => {
      if (type === "error" && !text.includes("none.js")) errors.push(text);
    };
    await withPage(kind, onConsole, async (page, url) => {
      const { results, relative, missing } = await page.evaluate(runInPage, url);
      await report(t, results);
      assert.equal(relative, "llama", "a relative address starts from the page");
      assert.match(missing, /^worker-unavailable .*serve\(\)/);
    });
    assert.deepEqual(errors, [], "the page's console has errors");
  });
}
