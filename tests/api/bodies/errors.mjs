// Every failure is a TinyloomError of a fitting code: of values that throw when they are looked at, of
// arrays that are gone, and through structuredClone.
import { equal, ok, refuses } from "./assert.mjs";
import { batch, config } from "./kit.mjs";

const boom = () => {
  throw new Error("boom");
};

/** A value each of whose traps throws. */
const trap = () =>
  new Proxy(
    {},
    Object.fromEntries(
      ["get", "has", "ownKeys", "getPrototypeOf", "getOwnPropertyDescriptor"].map((name) => [
        name,
        boom,
      ]),
    ),
  );

function revoked(target) {
  const { proxy, revoke } = Proxy.revocable(target, {});
  revoke();
  return proxy;
}

function detached(array) {
  structuredClone(array.buffer, { transfer: [array.buffer] });
  return array;
}

async function thrown(work) {
  try {
    await work();
  } catch (error) {
    return error;
  }
  throw new Error("nothing was thrown");
}

/** Where this body's cases run: see hosts.mjs. */
export const place = {
  whole: ["node", "chromium", "firefox"],
  why: "structuredClone, proxies and detached arrays are the engine's",
};

export const cases = {
  async "an error survives structuredClone and a message port"({ tinyloom, runtime }) {
    const { TinyloomError } = tinyloom;
    const error = await thrown(() => tinyloom.Model.create(runtime, { model_type: "gptj" }));
    ok(error instanceof TinyloomError && error instanceof Error, "its class");
    equal(String(error), `TinyloomError: ${error.message}`);
    ok(error.stack.includes("\n") || error.stack.includes("@"), `its stack: ${error.stack}`);
    const { port1, port2 } = new MessageChannel();
    const received = new Promise((done) => {
      port2.onmessage = ({ data }) => done(data);
    });
    port1.postMessage({ failed: error });
    const message = (await received).failed;
    port1.close();
    for (const copy of [structuredClone(error), message]) {
      equal(
        [copy.name, copy.code, copy.message],
        ["TinyloomError", "invalid-config", error.message],
      );
      const again = TinyloomError.from(copy);
      ok(again instanceof TinyloomError, "the class of what comes back");
      equal([again.code, again.message, again.stack], [error.code, error.message, error.stack]);
      equal(again.cause, undefined, "the cause of what comes back");
    }
    equal(TinyloomError.from(error), error, "an error comes back as it is");
    // A cause may be what no clone can hold.
    const why = () => 4;
    const caused = new TinyloomError("aborted", "stopped", { cause: why });
    equal(caused.cause, why, "the cause");
    equal(structuredClone(caused).code, "aborted");
    equal(TinyloomError.from({ code: "freed", message: "gone" }).code, "freed");
    equal(TinyloomError.from(new DOMException("", "AbortError")).code, "aborted");
    for (const other of [undefined, null, 4, "text", new Error("x"), trap(), revoked({})]) {
      const made = TinyloomError.from(other);
      equal([made.name, made.code], ["TinyloomError", "internal"]);
    }
  },

  async "values that throw when they are read"({ tinyloom, runtime }) {
    const { Dataset, Model, Runtime, Trainer, ByteTokenizer } = tinyloom;
    const model = await Model.create(runtime, config);
    const trainer = await Trainer.create(model, { tokensPerStep: 16 });
    const getter = {
      get boom() {
        return boom();
      },
    };
    const calls = [
      ["invalid-config", (value) => Model.create(runtime, value)],
      ["invalid-options", (value) => Model.create(runtime, config, value)],
      ["invalid-options", (value) => Model.create(value, config)],
      ["invalid-options", (value) => Model.fromPretrained(runtime, value)],
      ["invalid-options", (value) => Model.fromPretrained(runtime, { "config.json": value })],
      ["invalid-options", (value) => Trainer.create(model, value)],
      ["invalid-options", (value) => Trainer.create(value)],
      ["invalid-options", (value) => Trainer.resume(runtime, value)],
      ["invalid-tokens", (value) => model.logits(value)],
      ["invalid-options", (value) => model.logits([1], value)],
      ["invalid-options", (value) => model.generate([1], value)],
      ["invalid-options", (value) => trainer.step(value)],
      ["invalid-tokens", (value) => trainer.step({ tokens: value, targets: [1] })],
      ["invalid-options", (value) => trainer.run(value)],
      ["invalid-options", async (value) => Dataset.fromTokens([1, 2], value)],
      ["invalid-tokens", async (value) => Dataset.fromTokens(value)],
      ["invalid-options", (value) => Dataset.fromText(value, new ByteTokenizer())],
      ["invalid-options", (value) => Dataset.fromText("abc", value)],
      ["invalid-options", async (value) => runtime.tensor(value, [1])],
      ["invalid-options", async (value) => runtime.tensor(null, value)],
      ["invalid-options", async (value) => runtime.tensor(null, [1], value)],
      ["invalid-options", (value) => Runtime.create(value)],
    ];
    for (const [index, [code, call]] of calls.entries()) {
      const values = [trap(), revoked({}), revoked([])];
      for (const [which, value] of values.entries()) {
        const error = await thrown(async () => {
          const result = await call(value);
          if (typeof result?.next === "function") await result.next();
        });
        const what = `call ${index}, value ${which}: ${error.stack ?? error}`;
        equal([error.name, error.code], ["TinyloomError", code], what);
      }
    }
    const caught = await refuses("invalid-options", "boom", () => Trainer.create(model, getter));
    equal(caught.cause.message, "boom", "the cause is kept");
    equal((await trainer.step(batch(16))).step, 1, "the trainer stays usable");
    model.free();
  },

  async "arrays whose buffers are gone"({ tinyloom, runtime }) {
    const { Dataset, Model } = tinyloom;
    const model = await Model.create(runtime, config);
    const files = await model.save();
    const gone = () => detached(Uint32Array.of(1, 2));
    await refuses("invalid-tokens", "empty", () => model.logits(gone()));
    await refuses("invalid-tokens", "empty", async () => Dataset.fromTokens(gone()));
    await refuses("invalid-options", "0 elements", async () =>
      runtime.tensor(detached(Float32Array.of(1)), [1]),
    );
    const trainer = await tinyloom.Trainer.create(model, { tokensPerStep: 16 });
    const { tokens, targets } = batch(8);
    for (const name of ["tokens", "targets", "documents"]) {
      for (const array of [Uint32Array.of(1, 2), Uint16Array.of(1), Uint8Array.of(1)]) {
        const given = { tokens, targets, [name]: detached(array) };
        await refuses("invalid-tokens", [name, "transferred"], () => trainer.step(given));
      }
    }
    equal((await trainer.step({ tokens, targets })).step, 1, "the trainer stays usable");
    for (const name of ["config.json", "model.safetensors"]) {
      const whole = detached(files[name].slice());
      for (const content of [whole, whole.buffer]) {
        const error = await thrown(() =>
          Model.fromPretrained(runtime, { ...files, [name]: content }),
        );
        const code =
          name === "config.json" ? /^invalid-(config|checkpoint)$/ : /^invalid-checkpoint$/;
        equal(error.name, "TinyloomError", error.stack);
        ok(code.test(error.code), `${name}: ${error.code} ${error.message}`);
      }
    }
    model.free();
  },

  async "proxies and subclasses of arrays, and signals that throw"({ tinyloom, runtime }) {
    const { Dataset, Model, Trainer } = tinyloom;
    const model = await Model.create(runtime, config);
    const trainer = await Trainer.create(model, { tokensPerStep: 16 });
    const { tokens, targets } = batch(8);
    class Odd extends Uint32Array {
      slice() {
        return boom();
      }
      static get [Symbol.species]() {
        return boom();
      }
    }
    for (const wrong of [
      new Proxy(new Uint32Array([1, 2]), {}),
      new Proxy(new Uint8Array(2), {}),
    ]) {
      const calls = [
        () => model.loss(wrong),
        () => model.loss(tokens, wrong),
        () => model.logits(wrong),
        () => model.generate(wrong),
        () => trainer.step({ tokens: wrong, targets }),
        () => trainer.step({ tokens, targets: wrong }),
        async () => Dataset.fromTokens(wrong),
      ];
      for (const call of calls) await refuses("invalid-tokens", "Uint32Array", call);
    }
    equal(await model.loss(Odd.from(tokens)), await model.loss(tokens), "of a subclass");
    for (const field of ["reason", "aborted"]) {
      const { signal } = new AbortController();
      let read = 0;
      // The first look, which checks that it is a signal, still finds one.
      Object.defineProperties(signal, {
        aborted: { get: () => (field === "aborted" && read++ > 0 ? boom() : field !== "aborted") },
        ...(field === "reason" && { reason: { get: boom } }),
      });
      const error = await refuses("aborted", "loss", () => model.loss(tokens, targets, { signal }));
      equal(error.cause.message, "boom");
    }
    equal((await trainer.step({ tokens, targets })).step, 1, "the trainer stays usable");
    await refuses("invalid-options", "softmax", () => tinyloom.ops.softmax(trap()));
    model.free();
  },

  async "configs that no text holds"({ tinyloom, runtime }) {
    const wrong = (value) =>
      refuses("invalid-config", "1048576 bytes", () =>
        tinyloom.Model.create(runtime, { ...config, ...value }),
      );
    const long = "x".repeat(300 << 20);
    await wrong({ a: long, b: long, c: long });
    await wrong({ [long]: 1 });
    await wrong({ list: Array(2 << 20).fill(0) });
    await wrong({ bytes: new Uint8Array(2 << 20) });
    await wrong({ deep: { deeper: ["\u0000".repeat(300_000)] } });
    equal(tinyloom.Model.countParameters(runtime, config) > 0, true, "a good config");
  },

  async "no adapter after the GPU was lost"({ tinyloom, gpu }) {
    const { Runtime } = tinyloom;
    const none = () => Runtime.create({ gpu: { requestAdapter: async () => null } });
    const adapter = await gpu.requestAdapter();
    const { features, limits, info } = adapter;
    // A device that says that it is lost as it does when the GPU's process has crashed.
    const requestDevice = async (wanted) => {
      const device = await adapter.requestDevice(wanted);
      const lost = Promise.resolve({ reason: "unknown", message: "crashed" });
      Object.defineProperty(device, "lost", { value: lost });
      return device;
    };
    const runtime = await Runtime.create({
      gpu: { requestAdapter: async () => ({ features, limits, info, requestDevice }) },
      recover: false,
    });
    equal((await runtime.lost).message.includes("crashed"), true, "the loss");
    const node = typeof globalThis.process?.versions?.node === "string";
    const words = ["lost", ...(node ? ["the process"] : ["two minutes", "reload"])];
    const error = await refuses("adapter-unavailable", words, none);
    ok(!/settings|driver/.test(error.message), error.message);
    runtime.destroy();
  },
};
