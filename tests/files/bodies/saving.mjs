// Saving to streams and directories: the bytes of a save into memory, in pieces, all or nothing.

import { equal, ok, refuses, sameBytes, sameFiles } from "../../api/bodies/assert.mjs";
import { batch, concat, config, makeFile, openFile, pause, soon } from "../../api/bodies/kit.mjs";
import { below, numbers } from "../../random.mjs";

const MODEL = ["config.json", "model.safetensors"];
const TRAINER = [...MODEL, "optimizer.safetensors", "trainer_state.json"];

/** Streams that keep what they get, and what became of each. */
function recorded(names, change = {}) {
  const kept = Object.fromEntries(names.map((name) => [name, { pieces: [], end: "open" }]));
  const to = Object.fromEntries(
    names.map((name) => [
      name,
      new WritableStream({
        write(bytes) {
          kept[name].pieces.push(bytes.slice());
        },
        close() {
          kept[name].end = "closed";
        },
        abort() {
          kept[name].end = "aborted";
        },
        ...change[name],
      }),
    ]),
  );
  const files = () => Object.fromEntries(names.map((name) => [name, concat(kept[name].pieces)]));
  return { to, kept, files, ends: () => names.map((name) => kept[name].end) };
}

/** Where this body's cases run: see hosts.mjs. */
export const place = {
  whole: ["node", "chromium", "firefox"],
  why: "streams and directories are the host's",
};

export const cases = {
  async "a directory whose streams have no writer"({ tinyloom, runtime }) {
    const model = await tinyloom.Model.create(runtime, config);
    for (const writer of [null, undefined, {}, 5]) {
      const createWritable = async () => ({ getWriter: () => writer });
      const to = { getFileHandle: async () => ({ createWritable }) };
      await refuses("invalid-options", ["config.json", "writer"], () => model.save({ to }));
    }
    model.free();
  },

  async "a flipped bit of any file is refused, or changes nothing"({ tinyloom, runtime }) {
    const model = await tinyloom.Model.create(runtime, config, { seed: 4 });
    const trainer = await tinyloom.Trainer.create(model, { tokensPerStep: 16 });
    await trainer.step(batch(16));
    const files = await trainer.save();
    const draw = below(numbers(4));
    let refused = 0;
    for (const name of TRAINER) {
      for (let time = 0; time < 12; time++) {
        const bytes = files[name].slice();
        // Of a safetensors file the last ones are weights, the first ones its header.
        const at =
          time < 6 ? draw(Math.min(bytes.length, 400)) : bytes.length - 1 - draw(bytes.length);
        bytes[at] ^= 1 << draw(8);
        const resumed = await tinyloom.Trainer.resume(runtime, { ...files, [name]: bytes }).catch(
          (error) => {
            ok(/^invalid-(checkpoint|config)$/.test(error.code), `${error.code} ${error.message}`);
            refused += 1;
          },
        );
        if (!resumed) continue;
        sameFiles(await resumed.save(), files, `byte ${at} of ${name}`);
        resumed.model.free();
      }
    }
    const { "model.safetensors": weights, "config.json": saved } = files;
    const bytes = weights.slice();
    bytes[bytes.length - 5] ^= 1;
    const damaged = { "config.json": saved, "model.safetensors": bytes };
    await refuses("invalid-checkpoint", ["damaged", "CRC-32", "remove its crc32 fields"], () =>
      tinyloom.Model.fromPretrained(runtime, damaged),
    );
    const { header, data } = openFile(bytes);
    const { crc32, crc32_header, ...metadata } = header.__metadata__;
    ok(crc32 && crc32_header, "both are fields of the metadata");
    const unsigned = makeFile({ ...header, __metadata__: metadata }, data);
    const changed = { ...damaged, "model.safetensors": unsigned };
    (await tinyloom.Model.fromPretrained(runtime, changed)).free();
    model.free();
    ok(refused >= 40, `${refused} of 48 were refused`);
    return `${refused} of 48 refused`;
  },

  async "tensors of one shape that changed names in a header are refused"({ tinyloom, runtime }) {
    const model = await tinyloom.Model.create(runtime, config, { seed: 4 });
    const files = await model.save();
    model.free();
    const { header, data } = openFile(files["model.safetensors"]);
    const [one, other] = [0, 1].map((layer) => `model.layers.${layer}.self_attn.q_proj.weight`);
    const swapped = { ...header, [one]: header[other], [other]: header[one] };
    const load = (head) =>
      tinyloom.Model.fromPretrained(runtime, {
        ...files,
        "model.safetensors": makeFile(head, data),
      });
    await refuses("invalid-checkpoint", ["the header of model.safetensors", "CRC-32"], () =>
      load(swapped),
    );
    (await load(header)).free();
    const { crc32_header: _, ...old } = header.__metadata__; // as versions before wrote it
    (await load({ ...header, __metadata__: old })).free();
  },

  async "checksums that are none, and options that are a list, are refused"({ tinyloom, runtime }) {
    const { Model, Trainer } = tinyloom;
    const model = await Model.create(runtime, config, { seed: 4 });
    const trainer = await Trainer.create(model, { tokensPerStep: 16 });
    const files = await trainer.save();
    model.free();
    const name = "trainer_state.json";
    const state = JSON.parse(new TextDecoder().decode(files[name]));
    const resume = (changed) =>
      Trainer.resume(runtime, {
        ...files,
        [name]: new TextEncoder().encode(JSON.stringify({ ...state, ...changed })),
      });
    const { config: whole } = state.crc32;
    for (const crc32 of [
      -1,
      "x",
      null,
      0,
      [],
      {},
      { config: whole },
      { config: whole, state: 7 },
    ]) {
      await refuses("invalid-checkpoint", [name, "crc32 is", "8 hexadecimal digits"], () =>
        resume({ crc32 }),
      );
    }
    const options = [name, "sequence, expected struct TrainerOptions"];
    await refuses("invalid-checkpoint", options, () => resume({ options: [], crc32: undefined }));
    const { header, data } = openFile(files["model.safetensors"]);
    const load = (metadata) =>
      Model.fromPretrained(runtime, {
        ...files,
        "model.safetensors": makeFile({ ...header, __metadata__: metadata }, data),
      });
    const { crc32, ...rest } = header.__metadata__;
    const words = ["model.safetensors: crc32", "8 hexadecimal digits"];
    for (const sums of ["zz", "", crc32.slice(0, -9), crc32.slice(0, -1), `${crc32} 00000000`]) {
      await refuses("invalid-checkpoint", words, () => load({ ...rest, crc32: sums }));
    }
    await refuses("invalid-checkpoint", words, () => load(rest));
    for (const fine of [
      undefined,
      header.__metadata__,
      { format: "pt" },
      { crc32: "of the whole" },
    ]) {
      (await load(fine)).free();
    }
  },

  async "streams get the bytes of a save into memory"({ tinyloom, runtime }) {
    const model = await tinyloom.Model.create(runtime, config, { seed: 4 });
    const trainer = await tinyloom.Trainer.create(model, { tokensPerStep: 16 });
    await trainer.step(batch(16));
    const first = recorded(MODEL);
    const stages = new Set();
    let last;
    const onProgress = (progress) => {
      stages.add(progress.stage);
      last = progress;
    };
    equal(
      await model.save({ to: first.to, onProgress }),
      undefined,
      "what a save to streams gives",
    );
    sameFiles(first.files(), await model.save(), "the model's files");
    equal(first.ends(), ["closed", "closed"]);
    equal([...stages], ["read model.safetensors"], "stages");
    equal(last.loaded, last.total, "progress ends at its total");

    const second = recorded(TRAINER);
    await trainer.save({ to: second.to });
    sameFiles(second.files(), await trainer.save(), "the trainer's files");
    const again = await tinyloom.Trainer.resume(runtime, second.files());
    equal((await again.step(batch(16))).step, 2, "the run goes on");
    again.model.free();
    model.free();
  },

  async "nothing holds a tensor whole"({ tinyloom, runtime }) {
    // 67 MB in one tensor.
    const shape = { ...config, vocab_size: 1 << 16, hidden_size: 256, num_hidden_layers: 1 };
    const model = await tinyloom.Model.create(runtime, { ...shape, head_dim: 64 });
    const before = runtime._counters().wasmBytes;
    let [longest, total] = [0, 0];
    const count = {
      write(bytes) {
        longest = Math.max(longest, bytes.length);
        total += bytes.length;
      },
    };
    await model.save({ to: recorded(MODEL, { "model.safetensors": count }).to });
    const grown = runtime._counters().wasmBytes - before;
    model.free();
    ok(total > 67_000_000, `${total} bytes`);
    ok(longest <= 8 << 20, `a piece of ${longest} bytes`);
    // Several pieces are under way.
    ok(grown <= 48 << 20, `the module grew by ${grown} bytes`);
    return `${total} bytes in pieces of ${longest}, the module grew by ${grown}`;
  },

  async "a save that fails aborts every stream"({ tinyloom, runtime }) {
    const model = await tinyloom.Model.create(runtime, config);
    const failing = (error) => ({
      "model.safetensors": {
        write() {
          throw error;
        },
      },
    });
    const full = new DOMException("no more", "QuotaExceededError");
    for (const [error, code, words] of [
      [full, "storage-full", ["model.safetensors", "no room"]],
      [new Error("boom"), "invalid-options", ["model.safetensors", "boom"]],
    ]) {
      const streams = recorded(MODEL, failing(error));
      const thrown = await refuses(code, words, () => model.save({ to: streams.to }));
      equal(thrown.cause, error, "the cause");
      equal(streams.kept["config.json"].end, "aborted", "the other stream");
    }
    const controller = new AbortController();
    const stopped = recorded(MODEL);
    await refuses("aborted", [], () =>
      model.save({
        to: stopped.to,
        signal: controller.signal,
        onProgress: () => controller.abort(),
      }),
    );
    equal(stopped.ends(), ["aborted", "aborted"]);
    ok((await model.save())["model.safetensors"].length > 0, "the model stays usable");
    model.free();
  },

  async "the signal ends a save into what never answers"({ tinyloom, runtime }) {
    const model = await tinyloom.Model.create(runtime, config);
    let controller;
    const ends = [];
    /** Fires the signal once it is waited for. */
    const never = () => {
      setTimeout(() => controller.abort("enough"), 10);
      return new Promise(() => {});
    };
    const stalled = (step) =>
      recorded(MODEL, { "config.json": { write: step === "write" ? never : () => {} } });
    const late = () => {
      const writable = { abort: async () => ends.push("late"), getWriter: () => null };
      setTimeout(() => controller.abort("enough"), 10);
      return pause(30).then(() => writable);
    };
    const targets = {
      "a stream's write": () => stalled("write").to,
      "a stream's close": () => recorded(MODEL, { "config.json": { close: never } }).to,
      "a directory's handle": () => ({ getFileHandle: never }),
      "a handle's stream": () => ({ getFileHandle: async () => ({ createWritable: never }) }),
      "a stream that comes late": () => ({ getFileHandle: async () => ({ createWritable: late }) }),
    };
    for (const [name, make] of Object.entries(targets)) {
      controller = new AbortController();
      const { signal } = controller;
      const saved = () => soon(name, model.save({ to: make(), signal }));
      const { cause } = await refuses("aborted", "save", saved);
      equal(cause, "enough", `the cause of ${name}`);
    }
    await pause(50);
    equal(ends, ["late"], "a stream that came after the signal");
    ok((await model.save())["model.safetensors"].length > 0, "the model stays usable");
    model.free();
  },

  async "the signal aborts every file of a save, or none"({ tinyloom, runtime }) {
    const model = await tinyloom.Model.create(runtime, config);
    const controller = new AbortController();
    const closing = {
      "config.json": {
        close() {
          controller.abort();
        },
      },
    };
    const { to, kept } = recorded(MODEL, closing);
    await model.save({ to, signal: controller.signal });
    equal(kept["model.safetensors"].end, "closed", "the signal fired at the first file's close");

    const before = new AbortController();
    const stopped = recorded(MODEL);
    let passes = 0;
    const onProgress = ({ loaded, total }) => {
      if (loaded < total) return;
      passes += 1;
      if (passes === 2) before.abort(); // the first pass is for the checksums
    };
    const saved = () => model.save({ to: stopped.to, signal: before.signal, onProgress });
    await refuses("aborted", "save", saved);
    await pause(20);
    equal(stopped.ends(), ["aborted", "aborted"], "the signal fired when all was written");
    model.free();
  },

  async "targets that cannot be are refused before they are touched"({ tinyloom, runtime }) {
    const model = await tinyloom.Model.create(runtime, config);
    const wrong = (words, to) => refuses("invalid-options", words, () => model.save({ to }));
    await wrong("directory handle", "/tmp");
    await wrong("config.json", {});
    const { to, ends } = recorded(MODEL);
    const { "config.json": one } = to;
    await wrong("model.safetensors", { "config.json": one });
    await wrong("model.safetensor", { ...to, "model.safetensor": to["model.safetensors"] });
    await wrong("config.json", { ...to, "config.json": new Uint8Array(4) });
    const writer = one.getWriter();
    await wrong(["config.json", "locked"], to);
    writer.releaseLock();
    equal(ends(), ["open", "open"], "the streams");
    const old = { getFileHandle: async () => ({}) };
    await wrong("cannot write to a directory", old);
    const denied = {
      async getFileHandle() {
        throw new DOMException("not allowed", "NotAllowedError");
      },
    };
    await wrong(["config.json", "not allowed"], denied);
    await model.save({ to });
    equal(ends(), ["closed", "closed"], "the streams can still be used");
    model.free();
  },

  async "a directory gets the files, which load again"({ tinyloom, runtime }) {
    const model = await tinyloom.Model.create(runtime, config, { seed: 9 });
    const real = typeof navigator.storage?.getDirectory === "function";
    const root = real ? await navigator.storage.getDirectory() : fakeDirectory();
    await model.save({ to: root });
    const load = async () => {
      const source = {};
      for (const name of MODEL) source[name] = await (await root.getFileHandle(name)).getFile();
      const again = await tinyloom.Model.fromPretrained(runtime, source);
      const files = await again.save();
      again.free();
      return files;
    };
    sameFiles(await load(), await model.save(), "what the directory holds");
    // A save that is stopped leaves the files that were there.
    const other = await tinyloom.Model.create(runtime, config, { seed: 10 });
    const controller = new AbortController();
    await refuses("aborted", [], () =>
      other.save({
        to: root,
        signal: controller.signal,
        onProgress: ({ loaded }) => loaded > 0 && controller.abort(),
      }),
    );
    sameFiles(await load(), await model.save(), "after a save that was stopped");
    if (real) for (const name of MODEL) await root.removeEntry(name);
    model.free();
    other.free();
    return real ? "the origin's private file system" : "a directory in memory";
  },

  async "file handles are saved to and loaded from"({ tinyloom, runtime }) {
    const { Model, Trainer } = tinyloom;
    const model = await Model.create(runtime, config, { seed: 9 });
    const trainer = await Trainer.create(model, { tokensPerStep: 16 });
    await trainer.step(batch(16));
    const { handles, remove, kind } = await fileHandles(TRAINER);
    await trainer.save({ to: handles });
    const files = await trainer.save();
    // A file that can be written again has its checksums at its beginning, as without `to`.
    for (const name of TRAINER) {
      const stored = new Uint8Array(await (await handles[name].getFile()).arrayBuffer());
      sameBytes(stored, files[name], name);
    }
    const resumed = await Trainer.resume(runtime, handles);
    sameFiles(await resumed.save(), files, "a resumed run");
    const loaded = await Model.fromPretrained(runtime, handles);
    const weights = (await loaded.save())["model.safetensors"];
    sameBytes(weights, files["model.safetensors"], "a loaded model");
    // A save that is stopped leaves the files as they were, a stream beside them is aborted.
    await resumed.step(batch(16));
    const { to, ends } = recorded(["config.json"]);
    const controller = new AbortController();
    const onProgress = ({ loaded }) => loaded > 0 && controller.abort();
    const stopped = { to: { ...handles, ...to }, signal: controller.signal, onProgress };
    await refuses("aborted", [], () => resumed.save(stopped));
    equal(ends(), ["aborted"], "the stream");
    sameFiles(await (await Trainer.resume(runtime, handles)).save(), files, "after the stop");
    const gone = {
      async getFile() {
        throw new DOMException("it was moved", "NotFoundError");
      },
    };
    const source = { ...handles, "model.safetensors": gone };
    await refuses("invalid-checkpoint", ["model.safetensors", "it was moved"], () =>
      Model.fromPretrained(runtime, source),
    );
    // One file alone has to be a GGUF file.
    await refuses("invalid-checkpoint", "GGUF", () =>
      Model.fromPretrained(runtime, handles["config.json"]),
    );
    await refuses("invalid-options", "cannot write to a directory or file handle", () =>
      model.save({ to: { "config.json": handles["config.json"], "model.safetensors": gone } }),
    );
    for (const one of [resumed.model, loaded, model]) one.free();
    await remove();
    return kind;
  },
};

/** A handle per file, of the origin's private file system where there is one, and what removes them. */
async function fileHandles(names) {
  const real = typeof navigator.storage?.getDirectory === "function";
  const root = real ? await navigator.storage.getDirectory() : fakeDirectory();
  const entries = names.map(async (name) => [
    name,
    await root.getFileHandle(`handle-${name}`, { create: true }),
  ]);
  const handles = Object.fromEntries(await Promise.all(entries));
  const remove = async () => {
    if (real) for (const name of names) await removed(root, `handle-${name}`);
  };
  return { handles, remove, kind: real ? handles[names[0]].constructor.name : "made here" };
}

/** Removes a file. Chromium may hold the lock of an aborted stream for a moment longer. */
async function removed(root, name) {
  for (let tries = 1; ; tries++) {
    try {
      return await root.removeEntry(name);
    } catch (error) {
      if (error.name !== "NoModificationAllowedError" || tries === 20) throw error;
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
}

/** A directory as browsers have it, in memory: a file changes when its stream is closed. */
function fakeDirectory() {
  const files = {};
  return {
    async getFileHandle(name) {
      return {
        getFile: async () => new Blob([files[name]]),
        async createWritable() {
          const pieces = [];
          const again = [];
          return new WritableStream({
            write(chunk) {
              if (chunk.type === "write") again.push(chunk);
              else pieces.push(chunk.slice());
            },
            close() {
              files[name] = concat(pieces);
              for (const { data, position } of again) files[name].set(data, position);
            },
          });
        },
      };
    },
  };
}
