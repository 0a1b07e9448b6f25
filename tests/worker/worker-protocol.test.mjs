// What crosses to a worker and back, without a worker and without a GPU: both sides are here, with a port
// between them.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { ByteTokenizer, TinyloomError } from "tinyloom";

const { Connection } = await import("../../pkg/dist/worker/connection.js");
const { Host } = await import("../../pkg/dist/worker/host.js");
const { transfer } = await import("../../pkg/dist/worker/pack.js");
const { expose } = await import("../../pkg/dist/worker/comlink.js");
const { PAGE } = await import("../../pkg/dist/worker/wire.js");

const code =
  (wanted, words = "") =>
  (error) =>
    error instanceof TinyloomError && error.code === wanted && error.message.includes(words);

class GPUDevice {}

/** What a trainer is to this test. */
class Engine {
  #rate = 1;
  #lost;
  made;
  lost = new Promise((done) => {
    this.#lost = done;
  });
  options = { a: 1 };
  _internal = 5;
  log = [];

  constructor(made) {
    this.made = made;
  }

  static unit = "step";

  static create(options = {}) {
    return new Engine(options);
  }

  get rate() {
    if (Number.isNaN(this.#rate)) throw new TinyloomError("freed", "this Engine was freed");
    return this.#rate;
  }

  set rate(value) {
    if (!(value > 0)) throw new TinyloomError("invalid-options", `rate is ${value}`);
    this.#rate = value;
  }

  get device() {
    return new GPUDevice();
  }

  get part() {
    this.own ??= new Part(this);
    return this.own;
  }

  step(by = 1) {
    this.#rate += by;
    this.options = { a: this.options.a }; // equal, and not the same
    return this.#rate;
  }

  async *run({ steps, signal, onProgress } = {}) {
    try {
      for (let at = 1; at <= steps; at++) {
        if (signal?.aborted) throw new TinyloomError("aborted", "run", { cause: signal.reason });
        onProgress?.({ loaded: at, total: steps });
        this.step();
        this.log = [...this.log, at];
        yield { at };
      }
      return "done";
    } finally {
      this.log = [...this.log, "left"];
    }
  }

  until(signal) {
    return new Promise((_, fail) => {
      signal.addEventListener("abort", () =>
        fail(new TinyloomError("aborted", "until", { cause: signal.reason })),
      );
    });
  }

  echo(...values) {
    return values;
  }

  describe(...values) {
    return values.map((value) => value?.constructor?.name ?? typeof value);
  }

  numbers(count) {
    return { "a.bin": new Float32Array(count).fill(2), whole: new Uint8Array(4) };
  }

  async report(onProgress) {
    onProgress({ loaded: 1 });
    await pause(5);
    onProgress({ loaded: 2 });
    return new Engine();
  }

  fail(thrown) {
    throw thrown ?? new TinyloomError("non-finite", "no", { cause: new TypeError("under") });
  }

  decoder() {
    let text = "";
    return { push: (more) => (text += more), end: () => text };
  }

  loseDevice() {
    this.#lost({ reason: "unknown" });
  }

  free() {
    this.#rate = Number.NaN;
  }
}

class Part {
  constructor(engine) {
    this.engine = engine;
  }
  get double() {
    return 2 * this.engine.rate;
  }
}

/** A connection to a host with these exports. */
async function link(t, more = {}) {
  const { port1, port2 } = new MessageChannel();
  const host = new Host({ Engine, Part, LIMIT: 7, add: (a, b) => a + b, ByteTokenizer, ...more });
  expose(host, port2);
  const connection = new Connection(port1);
  t.after(() => connection.end(new TinyloomError("freed", "closed")));
  const remote = await connection.open();
  return { host, connection, ...remote };
}

test("classes, functions and constants have their names; hidden members do not cross", async (t) => {
  const { Engine: Remote, LIMIT, add, ByteTokenizer: none } = await link(t);
  assert.equal(Remote.name, "Engine");
  assert.equal(Remote.unit, "step");
  assert.equal(LIMIT, 7);
  assert.equal(await add(2, 3), 5);
  assert.equal(none, undefined, "the page has its own");
  const engine = await Remote.create({ b: 2 });
  assert.ok(engine instanceof Remote);
  assert.ok(!("_internal" in engine));
  assert.throws(() => new Remote(), code("invalid-options", "new Engine()"));
  assert.throws(() => Remote.prototype.step.call({}), code("invalid-options", "Engine.step"));
});

test("properties are properties, and follow each call and each step of an iterator", async (t) => {
  const { Engine: Remote } = await link(t);
  const engine = await Remote.create({ b: 2 });
  assert.deepEqual([engine.rate, engine.made, engine.options], [1, { b: 2 }, { a: 1 }]);
  const { options } = engine;
  assert.equal(await engine.step(4), 5);
  assert.equal(engine.rate, 5);
  assert.equal(engine.options, options, "what has not changed is not sent again");
  const part = engine.part;
  assert.equal(part.double, 10);
  assert.equal(part.engine, engine, "one object has one mirror");
  const seen = [];
  for await (const { at } of engine.run({ steps: 3 })) seen.push([at, engine.rate, part.double]);
  assert.deepEqual(seen, [
    [1, 6, 12],
    [2, 7, 14],
    [3, 8, 16],
  ]);
  assert.throws(() => {
    engine.made = 1;
  }, TypeError);
});

test("a free() that is on its way when the connection ends has freed", async (t) => {
  const { Engine: Remote, connection } = await link(t);
  const engine = await Remote.create();
  const [freed, stepped] = [engine.free(), engine.step()];
  connection.end(new TinyloomError("freed", "closed"));
  assert.equal(await freed, undefined);
  assert.equal(await engine.free(), undefined, "nor is there anything to free later");
  await assert.rejects(stepped, code("freed", "closed"));
  await assert.rejects(engine.step(), code("freed", "closed"));
});

test("a property can be set; a refused value is told by the next call, and the old one is back", async (t) => {
  const { Engine: Remote } = await link(t);
  const engine = await Remote.create();
  engine.rate = 3;
  assert.equal(engine.rate, 3);
  assert.equal(await engine.step(), 4);
  engine.rate = -1;
  await assert.rejects(engine.step(), code("invalid-options", "rate is -1"));
  assert.equal(engine.rate, 4);
  assert.equal(await engine.step(), 5);
  const seen = [];
  await assert.rejects(
    async () => {
      for await (const { at } of engine.run({ steps: 9 })) {
        seen.push(at);
        if (at === 2) engine.rate = -2;
      }
    },
    code("invalid-options", "rate is -2"),
  );
  assert.deepEqual(
    [seen, engine.log],
    [
      [1, 2],
      [1, 2, "left"],
    ],
  );
});

test("what throws there throws here; a promise is a promise; a GPU object stays", async (t) => {
  const { Engine: Remote } = await link(t);
  const engine = await Remote.create();
  assert.throws(() => engine.device, code("invalid-options", "connect({ worker })"));
  let info;
  engine.lost.then((value) => {
    info = value;
  });
  await engine.step();
  assert.equal(info, undefined);
  await engine.loseDevice();
  await pause(5);
  assert.deepEqual(info, { reason: "unknown" });
  await engine.free();
  assert.throws(() => engine.rate, code("freed"));
});

test("errors keep code, message and cause", async (t) => {
  const { Engine: Remote } = await link(t);
  const engine = await Remote.create();
  await assert.rejects(engine.fail(), (error) => {
    assert.ok(code("non-finite", "no")(error));
    return error.cause.name === "TypeError" && error.cause.message === "under";
  });
  await assert.rejects(engine.fail("text"), code("internal", "text"));
  const next = engine.run({ steps: 1, signal: AbortSignal.abort("why") }).next();
  await assert.rejects(next, (error) => code("aborted")(error) && error.cause === "why");
});

test("an iterator gives its value at the end, and its return() reaches the worker", async (t) => {
  const { Engine: Remote } = await link(t);
  const engine = await Remote.create();
  const iterator = engine.run({ steps: 2 });
  assert.equal(typeof iterator[Symbol.asyncIterator], "function");
  assert.deepEqual(await iterator.next(), { done: false, value: { at: 1 } });
  await pause(20);
  assert.deepEqual(engine.log, [1], "no step before it is asked for");
  assert.deepEqual(await iterator.next(), { done: false, value: { at: 2 } });
  assert.deepEqual(await iterator.next(), { done: true, value: "done" });
  assert.deepEqual(engine.log, [1, 2, "left"]);
  for await (const { at } of engine.run({ steps: 100 })) if (at === 2) break;
  assert.deepEqual(engine.log.slice(3), [1, 2, "left"]);
  await assert.rejects(async () => {
    for await (const _ of engine.run({ steps: 100 })) throw new Error("of the loop");
  }, /of the loop/);
  assert.deepEqual(engine.log.slice(6), [1, "left"]);
});

test("a signal is forwarded with its reason, to calls and between steps", async (t) => {
  const { Engine: Remote, host } = await link(t);
  const engine = await Remote.create();
  const controller = new AbortController();
  const waiting = engine.until(controller.signal);
  await pause(5);
  controller.abort(new RangeError("enough"));
  await assert.rejects(
    waiting,
    (error) => code("aborted")(error) && error.cause.message === "enough",
  );
  const other = new AbortController();
  const steps = engine.run({ steps: 9, signal: other.signal });
  await steps.next();
  other.abort();
  await assert.rejects(steps.next(), code("aborted"));
  assert.equal(host._signalCount, 0, "ended calls keep no signal");
});

test("callbacks are called in order and before the result; what they throw ends the call", async (t) => {
  const { Engine: Remote } = await link(t);
  const engine = await Remote.create();
  const seen = [];
  await engine.report(({ loaded }) => seen.push(loaded));
  assert.deepEqual(seen, [1, 2]);
  for (const bad of [1, 2]) {
    const onProgress = ({ loaded }) => {
      if (loaded === bad) throw new Error("mine");
    };
    await assert.rejects(engine.report(onProgress), /mine/);
  }
  const steps = engine.run({
    steps: 5,
    onProgress: ({ loaded }) => {
      if (loaded === 2) throw new Error("stop");
    },
  });
  await assert.rejects(
    async () => {
      for await (const _ of steps);
    },
    code("invalid-options", "onProgress threw Error: stop"),
  );
});

test("arguments cross: objects of the worker, URLs, responses, tokenizers, streams", async (t) => {
  const { Engine: Remote, Part: RemotePart } = await link(t);
  const engine = await Remote.create();
  const part = engine.part;
  const body = new Response("abc");
  const stream = new Blob(["x"]).stream();
  const values = [engine, part, new URL("http://a/b"), body, new ByteTokenizer(), stream];
  assert.deepEqual(
    await engine.describe(...values, new Blob(["x"]), null, new Float32Array(1)),
    "Engine Part URL Response ByteTokenizer ReadableStream Blob object Float32Array".split(" "),
  );
  const [same, nested] = await engine.echo(engine, { deep: [{ part }] });
  assert.equal(same, engine);
  assert.equal(nested.deep[0].part, part);
  assert.ok(part instanceof RemotePart);
  const loop = { one: 1 };
  loop.self = loop;
  assert.equal((await engine.echo(loop))[0].self.self.one, 1);
});

test("what cannot cross is refused with a reason", async (t) => {
  const { Engine: Remote } = await link(t);
  const other = await link(t);
  const engine = await Remote.create();
  const strange = await other.Engine.create();
  const refused = (value, words) =>
    assert.rejects(engine.echo(value), code("invalid-options", words));
  await refused(strange, "another connection");
  await refused({ gpu: new GPUDevice() }, "GPU objects stay");
  await refused(new Part(), "instances of classes stay");
  await refused(Symbol("s"), "a value cannot go to the worker");
  await refused(Promise.resolve(1), "await it first");
  await refused(new Response("", { status: 404 }), "404");
  const bad = {
    get steps() {
      throw new Error("mine");
    },
  };
  await refused(bad, "an option's getter threw Error: mine");
});

test("results move, arguments are copied unless they are given away", async (t) => {
  const kept = new Float32Array(8);
  const { Engine: Remote, numbers } = await link(t, { numbers: () => kept });
  const engine = await Remote.create();
  assert.equal((await engine.numbers(3))["a.bin"].length, 3);
  assert.equal((await numbers()).length, 8);
  assert.equal(kept.length, 0, "the result's buffer moved");
  const mine = new Uint32Array(4);
  await engine.echo(mine);
  assert.equal(mine.length, 4);
  const files = { a: mine, b: new Uint8Array(9).subarray(2) };
  await engine.echo(transfer(files));
  assert.deepEqual([mine.length, files.b.length], [0, 7], "whole buffers move, parts are copied");
});

test("what is no array, or was given away before, is refused at once", async (t) => {
  const { Engine: Remote } = await link(t);
  const engine = await Remote.create();
  for (const wrong of [undefined, null, 5, "tokens", Symbol("s"), () => 1]) {
    assert.throws(() => transfer(wrong), code("invalid-options", "transfer takes an array"));
  }
  const refused = (values, words) =>
    assert.rejects(engine.echo(...values), code("invalid-options", `echo: ${words} was emptied`));
  const gone = new Uint32Array(4);
  const { buffer } = gone;
  await engine.echo(transfer(gone));
  await refused([transfer(gone)], "argument 1");
  await refused([gone], "argument 1");
  await refused([1, transfer(buffer)], "argument 2");
  await refused([transfer({ "a.bin": new Uint8Array(2), "b.bin": gone })], "b.bin of argument 1");
  await refused([{ deep: { view: new Uint8Array(0), tokens: gone } }], "tokens of argument 1");
  const [empty] = await engine.echo(transfer(new Uint8Array(0)));
  assert.equal(empty.length, 0, "one that never had content");
});

test("an object of functions is one here too", async (t) => {
  const { Engine: Remote } = await link(t);
  const engine = await Remote.create();
  const decoder = await engine.decoder();
  await decoder.push("a");
  await decoder.push("b");
  assert.equal(await decoder.end(), "ab");
});

test("calls arrive in the order in which they are made", async (t) => {
  const { Engine: Remote } = await link(t);
  const engine = await Remote.create();
  const steps = engine.run({ steps: 1 });
  const results = await Promise.all([engine.step(), steps.next(), engine.step(), engine.step()]);
  assert.deepEqual([results[0], results[2], results[3]], [2, 4, 5]);
});

test("the end of the connection ends what runs and what is called later", async (t) => {
  const { connection, Engine: Remote, host } = await link(t);
  const engine = await Remote.create();
  const waiting = engine.until(new AbortController().signal);
  const steps = engine.run({ steps: 9 });
  await steps.next();
  connection.end(new TinyloomError("freed", "closed"));
  await assert.rejects(waiting, code("freed"));
  await assert.rejects(steps.next(), code("freed"));
  await assert.rejects(engine.step(), code("freed"));
  await assert.rejects(engine.lost, code("freed"));
  await pause(20);
  assert.equal(host._heldCount, 0);
});

test("a mirror or iterator that is dropped frees what it stood for", async (t) => {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc");
  const { Engine: Remote, host } = await link(t);
  const until = async (condition) => {
    for (let round = 0; round < 100 && !condition(); round++) {
      collect();
      await pause(10);
    }
    return condition();
  };
  const engine = await Remote.create();
  await (async () => {
    for (let index = 0; index < 20; index++) await Remote.create();
    await engine.run({ steps: 9 }).next();
  })();
  assert.ok(await until(() => host._heldCount <= 2), `${host._heldCount} objects are left`);
  assert.equal(await engine.step(), 3);
  const left = async () => {
    await engine.step();
    return engine.log.includes("left");
  };
  let ended = await left();
  for (let round = 0; round < 100 && !ended; round++) {
    collect();
    await pause(10);
    ended = await left();
  }
  assert.ok(ended, "the dropped iterator was left");
  const { part } = engine;
  assert.equal(part.double, 2 * engine.rate, "sent again after it was dropped");
});

test("what is sent again while the page lets go of it has its properties", async (t) => {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc");
  let dropped = 0;
  for (let round = 0; round < 20; round++) {
    const one = new Engine();
    const { kept } = await link(t, { kept: () => one });
    const first = await (async () => new WeakRef(await kept()))();
    await pause(1);
    const again = kept(); // on its way before the first one's end is told
    collect();
    dropped += Number(first.deref() === undefined);
    assert.equal((await again).rate, 1, `round ${round}`);
  }
  assert.ok(dropped > 0, "the first one was never dropped");
});

test("the page has a tokenizer and an error class of its own", () => {
  assert.deepEqual(PAGE, { ByteTokenizer, TinyloomError });
});
