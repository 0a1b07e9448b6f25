// The parts of the TypeScript layer that need no GPU: files, sources, queue, options, arguments.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import { parseCommand } from "../../scripts/args.mjs";
import { line } from "../../scripts/progress.mjs";
import { serve } from "../../scripts/server.mjs";
import { makeFile, openFile } from "./bodies/kit.mjs";

const { RawHandle } = await import("../../pkg/dist/raw-handle.js");
const { CallQueue } = await import("../../pkg/dist/call-queue.js");
const { InstanceLife } = await import("../../pkg/dist/instance-life.js");
const { pullTensors, readHeader, readHeaders, withRoom } = await import(
  "../../pkg/dist/safetensors.js"
);
const { readAhead } = await import("../../pkg/dist/readback.js");
const { save } = await import("../../pkg/dist/checkpoint-writer.js");
const { openSource } = await import("../../pkg/dist/file-source.js");
const { weightFiles } = await import("../../pkg/dist/checkpoint-files.js");
const { check, integer, number } = await import("../../pkg/dist/options.js");
const { toTokens } = await import("../../pkg/dist/tokens.js");

const data = Uint8Array.from([1, 2, 3, 4, 5, 6, 7, 8]);
const header = {
  a: { dtype: "F32", shape: [1], data_offsets: [0, 4] },
  b: { dtype: "F32", shape: [1], data_offsets: [4, 8] },
};
const code = (wanted) => (error) => error.name === "TinyloomError" && error.code === wanted;

/** A sink that takes what the header says, and remembers it. */
function recorder() {
  const taken = {};
  return {
    taken,
    headerLimit: () => 1000,
    addFile(_name, bytes) {
      const start = 8 + bytes.length;
      return JSON.stringify(
        Object.entries(JSON.parse(new TextDecoder().decode(bytes))).map(
          ([
            name,
            {
              data_offsets: [begin, end],
            },
          ]) => ({
            name,
            begin: start + begin,
            end: start + end,
          }),
        ),
      );
    },
    setPiece(name, begin, bytes) {
      taken[name] ??= [];
      assert.equal(begin, taken[name].length, `first byte of a piece of ${name}`);
      taken[name].push(...bytes);
    },
  };
}

const open = (files) => openSource("test", files, {});

test("tensors are pulled from Blobs and bytes, with progress", async () => {
  const file = makeFile(header, data);
  for (const content of [file, file.buffer, new Blob([file])]) {
    const sink = recorder();
    const progress = [];
    const files = await weightFiles(open({ "model.safetensors": content }));
    const headers = await readHeaders(files, sink);
    await pullTensors(headers, (_file, loaded, total) => progress.push([loaded, total]));
    assert.deepEqual(sink.taken, { a: [1, 2, 3, 4], b: [5, 6, 7, 8] });
    assert.deepEqual(progress, [
      [0, 8],
      [4, 8],
      [8, 8],
    ]);
  }
});

test("a tensor of several pieces comes in order, and the page gets its turns", async (t) => {
  const length = (9 << 20) + 4;
  const big = { a: { dtype: "F32", shape: [length / 4], data_offsets: [0, length] } };
  const file = makeFile(big, new Uint8Array(length).fill(7));
  const pieces = [];
  const sink = {
    ...recorder(),
    setPiece(_name, begin, bytes) {
      pieces.push([begin, bytes.length]);
      // As long as a slow machine takes for a piece.
      for (const until = performance.now() + 30; performance.now() < until; );
    },
  };
  let turns = 0;
  const timer = setInterval(() => turns++, 1);
  t.after(() => clearInterval(timer));
  const files = await readHeaders(await weightFiles(open({ "model.safetensors": file })), sink);
  await pullTensors(files, () => {});
  clearInterval(timer);
  const piece = 4 << 20;
  assert.deepEqual(pieces, [
    [0, piece],
    [piece, piece],
    [2 * piece, length - 2 * piece],
  ]);
  assert.ok(turns >= 2, `${turns} turns`);
});

/** A file of `size` zeros whose reads end when `finish` is called, and what happens to it in order. */
function slowFile(name, size, more = {}) {
  const events = [];
  const waiting = [];
  const read = (begin, end) => {
    events.push(`read ${begin >> 22}`);
    return new Promise((resolve, reject) => {
      waiting.push({ done: () => resolve(new Uint8Array(end - begin)), fail: reject });
    });
  };
  const rest = () => events.push("rest");
  const file = { name, place: name, remote: false, size, read, rest, ...more };
  return { file, events, waiting };
}

const MIDDLE = 4 << 20;
/** A tensor of three pieces, from a sink that notes them. */
function threePieces(slow, setPiece = () => {}) {
  const sink = {
    headerLimit: () => 0,
    addFile: () => "[]",
    setPiece: (name, begin) => {
      slow.events.push(`set ${begin >> 22}`);
      setPiece(name, begin);
    },
    summed: () => slow.events.push("summed"),
  };
  const ranges = [{ name: "a", begin: 0, end: 2 * MIDDLE + 16 }];
  return [{ file: slow.file, sink, ranges, sums: new Map(), dtypes: new Set() }];
}
const settled = () => new Promise((next) => setTimeout(next, 40));

test("the next piece is read while one is taken, and never two at once", async () => {
  const slow = slowFile("x", 2 * MIDDLE + 16);
  const pulled = pullTensors(threePieces(slow), () => {});
  for (const piece of [0, 1, 2]) {
    await settled();
    assert.equal(slow.waiting.length, piece + 1, "reads that have begun");
    slow.waiting[piece].done();
  }
  await pulled;
  const one = ["read 0", "read 1", "set 0", "read 2", "set 1", "set 2", "summed", "rest"];
  assert.deepEqual(slow.events, one);
});

test("a piece that fails is told when its turn comes", async () => {
  const slow = slowFile("x", 2 * MIDDLE + 16);
  const pulled = pullTensors(threePieces(slow), () => {});
  const refused = assert.rejects(pulled, /gone/);
  await settled();
  slow.waiting[0].done();
  await settled();
  slow.waiting[1].fail(new Error("gone"));
  await refused;
  assert.deepEqual(slow.events, ["read 0", "read 1", "set 0", "rest"]);
});

test("a failure does not wait for what is read ahead, which then gives its file back", async () => {
  const slow = slowFile("x", 2 * MIDDLE + 16);
  const full = () => {
    throw new Error("full");
  };
  const pulled = pullTensors(threePieces(slow, full), () => {});
  const refused = assert.rejects(pulled, /full/);
  await settled();
  slow.waiting[0].done();
  await refused;
  assert.deepEqual(slow.events, ["read 0", "read 1", "set 0", "rest"]);
  slow.waiting[1].done();
  await settled();
  assert.deepEqual(slow.events.slice(4), ["rest"]);
});

test("bytes in memory are read when their turn comes", async () => {
  const slow = slowFile("x", 2 * MIDDLE + 16, { here: true });
  const pulled = pullTensors(threePieces(slow), () => {});
  for (const piece of [0, 1, 2]) {
    await settled();
    slow.waiting[piece].done();
  }
  await pulled;
  const each = [0, 1, 2].flatMap((piece) => [`read ${piece}`, `set ${piece}`]);
  assert.deepEqual(slow.events, [...each, "summed", "rest"]);
});

test("a tensor without bytes has a sum, too", async () => {
  const { file, events, waiting } = slowFile("x", 0);
  const sink = { setPiece: (_, begin, bytes) => events.push([begin, bytes.length]) };
  const sums = [];
  const given = { file, sink: { ...sink, summed: (sum) => sums.push(sum) }, sums: new Map() };
  const pulled = pullTensors([{ ...given, ranges: [{ name: "a", begin: 8, end: 8 }] }], () => {});
  await settled();
  waiting[0].done();
  await pulled;
  assert.deepEqual(events.slice(1), [[0, 0], "rest"]);
  assert.equal(sums.length, 1);
});

test("a header that cannot be is refused", async () => {
  const part = (bytes) => ({
    name: "x",
    size: bytes.length,
    read: async (b, e) => bytes.subarray(b, e),
  });
  const lying = (length) => {
    const bytes = new Uint8Array(16);
    new DataView(bytes.buffer).setBigUint64(0, length, true);
    return part(bytes);
  };
  await assert.rejects(readHeader(part(new Uint8Array(7)), 1000), code("invalid-checkpoint"));
  await assert.rejects(readHeader(lying(9n), 1000), code("invalid-checkpoint"));
  await assert.rejects(readHeader(lying(1001n), 1000), code("invalid-checkpoint"));
  await assert.rejects(readHeader(lying(2n ** 64n - 1n), 1000), code("invalid-checkpoint"));
  assert.equal((await readHeader(lying(8n), 1000)).length, 8);
});

test("a base URL gives files, shards and clear failures", async (t) => {
  const files = {
    "/m/config.json": "{}",
    "/m/model.safetensors.index.json": JSON.stringify({ weight_map: { a: "s.safetensors" } }),
    "/m/s.safetensors": makeFile(header, data),
  };
  const server = createServer((request, response) => {
    const body = files[request.url];
    response.writeHead(request.url.startsWith("/broken") ? 500 : body ? 200 : 404).end(body);
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  t.after(() => server.close());
  const base = `http://127.0.0.1:${server.address().port}`;
  const stages = new Set();
  const onProgress = ({ stage }) => stages.add(stage);
  const [shard] = await weightFiles(openSource("test", `${base}/m`, { onProgress }));
  assert.equal(shard.name, "s.safetensors");
  assert.equal(shard.size, files["/m/s.safetensors"].length);
  assert.ok(stages.has("download s.safetensors"));
  await assert.rejects(open(`${base}/broken/`).find("config.json"), code("invalid-checkpoint"));
  await assert.rejects(open("http://127.0.0.1:1/").find("config.json"), code("invalid-checkpoint"));
  const signal = AbortSignal.abort();
  await assert.rejects(openSource("test", base, { signal }).find("config.json"), code("aborted"));
  assert.throws(() => open("http://"), code("invalid-options"));
});

test("in Node a folder on disk gives files, by its URL and by its path", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "tinyloom "));
  t.after(() => rmSync(folder, { recursive: true }));
  const file = makeFile(header, data);
  writeFileSync(join(folder, "model.safetensors"), file);
  const source = open(pathToFileURL(folder));
  const [part] = await weightFiles(source);
  assert.equal(part.size, file.length);
  assert.deepEqual(await part.read(0, part.size), file);
  assert.deepEqual(await part.read(file.length - 3, file.length), data.slice(-3));
  await assert.rejects(part.read(0, file.length + 1), code("invalid-checkpoint"));
  assert.equal(await source.find("config.json"), undefined);
  const [same] = await weightFiles(open(folder));
  assert.deepEqual(await same.read(0, same.size), file);
});

test("a saved file is written in pieces, and its length checked", async () => {
  const file = makeFile(header, data);
  const start = file.length - data.length;
  const names = ["config.json", "model.safetensors"];
  const saved = (tensors) => ({
    names,
    config: "{}",
    weights: {
      saveHeader: () => file.slice(0, start),
      tensorCount: () => tensors.length,
      readPiece: async (index, begin, end) => tensors[index].slice(begin, end),
    },
  });
  const whole = await save({}, saved([data.slice(0, 4), data.slice(4)]));
  assert.equal(new TextDecoder().decode(whole["config.json"]), "{}");
  const opened = openFile(whole["model.safetensors"]);
  const { __metadata__, ...tensors } = opened.header;
  assert.deepEqual(tensors, header);
  assert.deepEqual(opened.data, data);
  // As zlib has them: crc32(1, 2, 3, 4), crc32(5, 6, 7, 8), and that of the header's compact JSON.
  assert.deepEqual(__metadata__, { crc32: "b63cfbcd 538d4d69", crc32_header: "d9431179" });
  for (const wrong of [[data.slice(0, 4)], [data.slice(0, 4), data.slice(5)]]) {
    await assert.rejects(save({}, saved(wrong)), code("internal"));
  }
});

test("tensors are read ahead, in order, and an error waits for those under way", async () => {
  const sizes = [1, 1, 2 ** 30, 1, 1];
  const ended = [];
  let running = 0;
  let most = 0;
  const read = async (index) => {
    most = Math.max(most, ++running);
    await new Promise((done) => setTimeout(done, index === 0 ? 20 : 5));
    running -= 1;
    ended.push(index);
    if (index === 4) throw new Error("gone");
    return index;
  };
  const seen = [];
  const all = async () => {
    for await (const one of readAhead(sizes, read)) seen.push(one);
  };
  await assert.rejects(all, /gone/);
  assert.deepEqual(seen, [0, 1, 2, 3]);
  assert.equal(most, 3, "no further one beyond the large one");
  for await (const _ of readAhead([1, 1, 1], async (index) => read(index))) break;
  assert.equal(running, 0, "leaving the loop waits");
  assert.deepEqual([...new Set(ended)].sort(), [0, 1, 2, 3, 4]);
});

test("operations run in order, and a freed object refuses", async () => {
  const queue = new CallQueue();
  const events = [];
  const raw = { release: () => events.push("release") };
  const handle = new RawHandle("Model", raw, queue, new InstanceLife());
  const slow = handle.run(async () => {
    await new Promise((done) => setTimeout(done, 20));
    events.push("first");
  });
  const second = handle.run(() => {
    throw { code: "invalid-tokens", message: "no" };
  });
  const third = handle.run(() => events.push("third"));
  await assert.rejects(second, code("invalid-tokens"));
  await Promise.all([slow, third]);
  const running = handle.run(
    () => new Promise((_, fail) => setTimeout(() => fail(new Error("gone")), 20)),
  );
  const waiting = handle.run(() => events.push("never"));
  await Promise.resolve();
  handle.free();
  handle.free();
  await assert.rejects(running, code("freed"));
  await assert.rejects(waiting, code("freed"));
  await assert.rejects(
    handle.run(() => {}),
    code("freed"),
  );
  assert.throws(() => handle.callSync(() => {}), code("freed"));
  assert.deepEqual(events, ["first", "third", "release"]);
});

test("options are checked by name, type and range", () => {
  const rules = { steps: integer(1, 10), rate: number(0, 1, true) };
  assert.deepEqual(check("f", { steps: 3, rate: undefined }, rules), { steps: 3 });
  assert.deepEqual(check("f", undefined, rules), {});
  for (const wrong of [
    { steps: 0 },
    { steps: 11 },
    { steps: "3" },
    { steps: null },
    { rate: 0 },
    { rate: NaN },
  ]) {
    assert.throws(() => check("f", wrong, rules), code("invalid-options"));
  }
  assert.throws(
    () => check("f", { stepz: 3 }, rules),
    /f has no option "stepz".*; it takes steps, rate/,
  );
  assert.throws(() => check("f", [], rules), code("invalid-options"));
  assert.deepEqual([...toTokens("tokens", [1, 2])], [1, 2]);
  assert.throws(() => toTokens("tokens", new Float32Array(2)), code("invalid-tokens"));
  assert.throws(() => toTokens("tokens", [1, 2 ** 32]), /tokens\[1\] is 4294967296/);
});

test("the command line is parsed, and refused with usage", () => {
  const parsed = parseCommand([
    ...["--headless", "--browser", "firefox", "--config", '{"hidden_size":128}', "--steps", "300"],
    ...["--learning-rate", "1e-3", "--seed", "0", "--precision", "mixed", "--json"],
  ]);
  assert.equal(parsed.browser, "firefox");
  assert.equal(parsed.json, true);
  assert.deepEqual(parsed.job, {
    config: { hidden_size: 128 },
    steps: 300,
    learningRate: 1e-3,
    precision: "mixed",
    seed: 0,
  });
  assert.equal(parseCommand(["--headless", "--config", "tiny"]).job.config, "tiny");
  assert.deepEqual(parseCommand([]), { headless: false, port: 8080, portGiven: false });
  assert.deepEqual(parseCommand(["--port", "0"]), { headless: false, port: 0, portGiven: true });
  const { help } = parseCommand(["--help"]);
  for (const word of ["default 8080", "story-small", "0.006", "seed"])
    assert.match(help, RegExp(word));
  for (const wrong of [
    ["--headless", "--steps", "0"],
    ["--headless", "--steps", "ten"],
    ["--headless", "--steps=-1"],
    ["--headless", "--learning-rate", "fast"],
    ["--headless", "--learning-rate", "0"],
    ["--headless", "--browser", "opera"],
    ["--headless", "--precision", "f16"],
    ["--headless", "--config", "small"],
    ["--headless", "--config", "{"],
    ["--headless", "--config", "[1]"],
    ["--headless", "--text", "/no/such/file"],
    ["--headless", "extra"],
    ["--steps", "3"],
    ["--unknown"],
  ]) {
    assert.throws(
      () => parseCommand(wrong),
      (error) => error.exitCode === 2 && error.message.includes("npm start"),
    );
  }
});

test("a line of progress has step, loss, speed and time left", () => {
  const progress = { step: 75, steps: 300, loss: 2.34567, tokensPerSecond: 812.4 };
  // 74 steps in 29.7 s, after a first one of 60 s that compiled.
  const text = line(progress, 89.7, 60);
  assert.match(text, /75\/300 {2}loss 2\.346 {2}812 tokens\/s {2}1:29 {2}1:30 left/);
  for (const step of [0, 1, 3, 300]) {
    assert.doesNotMatch(line({ ...progress, step }, 70, 60), /left/, `step ${step}`);
  }
});

test("a port that is given and taken is refused; the default makes way", async (t) => {
  const first = await serve({});
  t.after(() => first.close());
  const port = Number(new URL(first.url).port);
  await assert.rejects(serve({}, { port }), new RegExp(`port ${port} is in use`));
  const other = await serve({}, { port, fallbackToAny: true });
  t.after(() => other.close());
  assert.notEqual(other.url, first.url);
});

test("what the module's memory has no room for is refused before it goes there", async () => {
  const full = { hasRoom: () => false };
  const sink = withRoom(full, recorder(), { sum: 0 });
  assert.throws(() => sink.setPiece("a", 0, new Uint8Array(2 << 20)), code("out-of-memory"));
  sink.setPiece("b", 0, data);
});

test("another wasm module is refused, and tinyloom's own still loads", async () => {
  const { loadRaw } = await import("../../pkg/dist/wasm-instance.js");
  const empty = Uint8Array.of(0, 0x61, 0x73, 0x6d, 1, 0, 0, 0);
  await assert.rejects(loadRaw(empty), code("invalid-options"));
  await assert.rejects(loadRaw(Uint8Array.of(1, 2, 3)), code("invalid-options"));
  const module = await loadRaw();
  assert.ok(module.hasRoom(1000) && !module.hasRoom(2 ** 40));
});

test("a panic ends what runs in its instance of the module and what comes after", async () => {
  const [life, other] = [new InstanceLife(), new InstanceLife()];
  const raw = { work: () => new Promise(() => {}), release() {} };
  const handle = new RawHandle("Model", raw, new CallQueue(), life);
  const running = handle.run((one) => one.work());
  const waiting = handle.run((one) => one.work());
  await new Promise((turn) => setTimeout(turn, 5));
  life.panicked("panicked at src/x.rs");
  for (const call of [running, waiting, handle.run(() => 1)]) {
    await assert.rejects(call, code("internal"));
  }
  assert.throws(() => handle.callSync(() => 1), /panicked at src\/x.rs/);
  handle.free();
  const fresh = new RawHandle("Model", raw, new CallQueue(), other);
  assert.equal(await fresh.run(() => 2), 2, "another instance goes on");
  fresh.free();
});
