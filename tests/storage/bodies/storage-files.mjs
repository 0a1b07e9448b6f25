// Cases of storage.mjs: a run's files, damaged, exported and imported.

import { equal, ok, refuses } from "../../api/bodies/assert.mjs";
import { below, numbers } from "../../random.mjs";
import { stepOf, twoCheckpoints } from "./storage-kit.mjs";

export const files = {
  async "a flipped bit or a lost end of any file: the checkpoint before loads, or the error says so"(
    context,
  ) {
    const { open, disk, sample } = context;
    const runs = await open("damage");
    const run = await twoCheckpoints(context, runs, "one");
    const { id } = run;
    await run.close();
    const paths = (await disk.list("damage")).filter((path) => path.startsWith(`${id}/`));
    const newest = Math.max(...paths.map((path) => Number(/\/c(\d+)\//.exec(path)?.[1] ?? 0)));
    const draw = below(numbers(77));
    let tried = 0;
    for (const [at, path] of paths.entries()) {
      if (sample && at % 3 !== 0) continue; // Node takes all
      const whole = await disk.read("damage", path);
      const flipped = whole.slice();
      flipped[draw(whole.length)] ^= 1 << draw(8);
      for (const [how, bytes] of [
        ["flipped", flipped],
        ["cut", whole.slice(0, draw(whole.length))],
      ]) {
        await disk.write("damage", path, bytes);
        const what = `${path} ${how}`;
        const opened = await runs.open("one");
        const ofNewest = Number(/\/c(\d+)\//.exec(path)?.[1] ?? 0) === newest;
        equal(await stepOf(context, opened), ofNewest ? 2 : 4, what);
        const name = path.split("/").at(-1);
        const noticed =
          ofNewest || name === "manifest.json" || name === "metrics.jsonl" ? [name] : [];
        equal(
          opened.problems.map(
            (problem) => /[\w.]+\.jsonl?\b|[\w.]+\.safetensors/.exec(problem)?.[0],
          ),
          noticed,
          `problems of ${what}: ${opened.problems}`,
        );
        if (path.endsWith("/data"))
          await refuses("invalid-checkpoint", ["data"], () => opened.data());
        if (path.endsWith("/metrics.jsonl") && how === "flipped") {
          await refuses("invalid-checkpoint", ["metrics.jsonl"], () => opened.metrics());
        }
        await opened.close();
        tried += 1;
      }
      await disk.write("damage", path, whole);
    }
    ok(tried >= (sample ? 8 : 26), `${tried} damages`);
    const log = `${id}/metrics.jsonl`;
    const whole = await disk.read("damage", log);
    // The mark behind a line's checksum, and the end of the last line.
    for (const at of [8, whole.length - 1]) {
      const flipped = whole.slice();
      flipped[at] ^= 1;
      await disk.write("damage", log, flipped);
      await refuses("invalid-checkpoint", ["metrics.jsonl"], () => runs.metrics("one"));
    }
    await runs.delete("one");
    return `${tried} damages`;
  },

  async "manifests and logs that are damaged or gone are told, and what was never finished is not"(
    context,
  ) {
    const { open, disk, tinyloom, runtime } = context;
    const runs = await open("lost");
    const run = await twoCheckpoints(context, runs, "one");
    await run.addSample({ step: 4, text: "a sample" });
    await run.addSample({ step: 4, text: "another" });
    await run.close();
    const { id } = run;
    const again = await runs.open("one");
    const resumed = await tinyloom.Trainer.resume(runtime, again);
    equal(again.problems, []);
    await resumed.save({ to: again }); // its manifest counts the samples that close() wrote
    await resumed.model.free();
    await again.close();
    const paths = (await disk.list("lost")).filter((path) => path.startsWith(`${id}/`));
    const manifest = `${id}/c00000003/manifest.json`;
    ok(paths.includes(manifest), `${paths}`);
    const garbage = new TextEncoder().encode("no line end");
    const tried = async (changes, problems, from) => {
      const whole = new Map();
      for (const [path, bytes] of Object.entries(changes)) {
        whole.set(path, await disk.read("lost", path));
        if (bytes) await disk.write("lost", path, bytes);
        else await disk.remove("lost", path);
      }
      const opened = await runs.open("one");
      equal(await stepOf(context, opened), from);
      equal(opened.problems, problems);
      await opened.close();
      for (const [path, bytes] of whole) await disk.write("lost", path, bytes);
    };
    await tried({}, [], 4);
    for (const bytes of [garbage, new Uint8Array()]) {
      await tried({ [manifest]: bytes }, ["checkpoint 3: its manifest.json is damaged"], 4);
    }
    await tried({ [manifest]: undefined }, ["checkpoint 3: its manifest.json is missing"], 4);
    // As a tab leaves it that ends while it saves.
    const state = manifest.replace("manifest.json", "trainer_state.json");
    await tried({ [manifest]: undefined, [state]: undefined }, [], 4);
    await tried({ [manifest]: undefined, [state]: garbage }, [], 4);
    const newest = "at the newest checkpoint";
    for (const [log, lines] of [
      ["metrics.jsonl", 4],
      ["samples.jsonl", 2],
    ]) {
      const path = `${id}/${log}`;
      for (const bytes of [undefined, new Uint8Array(), garbage]) {
        const problem = `${log} has 0 of the ${lines} lines that it had ${newest}`;
        await tried({ [path]: bytes }, [problem], 4);
      }
      const whole = await disk.read("lost", path);
      // A line that a crash cut off behind the checkpoint is no loss.
      const more = new Uint8Array(whole.length + 5);
      more.set(whole);
      more.fill(65, whole.length);
      await tried({ [path]: more }, [], 4);
      const flipped = whole.slice();
      flipped[20] ^= 1;
      await tried({ [path]: flipped }, [`${log}: line 1 is damaged`], 4);
    }
    // Without any manifest.
    const manifests = paths.filter((path) => path.endsWith("manifest.json"));
    for (const path of manifests) await disk.remove("lost", path);
    const opened = await runs.open("one");
    const words = ["no whole checkpoint", "checkpoint 3: its manifest.json is missing"];
    await refuses("invalid-checkpoint", words, () => tinyloom.Trainer.resume(runtime, opened));
    await opened.close();
    await runs.delete("one");
  },

  async "with every checkpoint damaged, or none, the error says so"(context) {
    const { open, disk, tinyloom, runtime } = context;
    const runs = await open("none");
    const run = await twoCheckpoints(context, runs, "one");
    for (const path of await disk.list("none")) {
      if (!path.endsWith("model.safetensors")) continue;
      const bytes = await disk.read("none", path);
      bytes[bytes.length - 3] ^= 4;
      await disk.write("none", path, bytes);
    }
    const words = ["model.safetensors", "damaged", "checkpoint 1", "checkpoint 2"];
    await refuses("invalid-checkpoint", words, () => tinyloom.Trainer.resume(runtime, run));
    await refuses("invalid-checkpoint", ["damaged"], () => runs.export("one"));
    await run.close();
    const empty = await runs.create("empty");
    await refuses("invalid-checkpoint", ["none yet"], () =>
      tinyloom.Trainer.resume(runtime, empty),
    );
    await empty.close();
    await runs.delete("one");
    await runs.delete("empty");
  },

  async "a run leaves as files or one zip, and comes back"(context) {
    const runs = await context.open("travel");
    const run = await twoCheckpoints(context, runs, "one");
    await run.close();
    const files = await runs.export("one");
    const names = [
      "config.json",
      "model.safetensors",
      "optimizer.safetensors",
      "trainer_state.json",
    ];
    for (const name of [...names, "run.json", "data", "tokenizer", "metrics.jsonl"]) {
      ok(files[name] instanceof Blob, name);
    }
    const zip = await runs.export("one", { zip: true });
    for (const [name, from] of Object.entries({ two: files, three: zip })) {
      const back = await runs.import(from, name);
      equal(await stepOf(context, back), 4, name);
      equal((await back.metrics()).length, 4);
      equal(await (await back.data()).text(), "the data");
      equal(back.options, { a: [1] });
      await back.close();
    }
    const bytes = new Uint8Array(await zip.arrayBuffer());
    bytes[2000] ^= 1;
    await refuses("invalid-options", ["zip"], () => runs.import(new Blob([bytes]), "four"));
    const cut = zip.slice(0, zip.size - 30);
    await refuses("invalid-options", ["zip"], () => runs.import(cut, "four"));
    const half = {
      ...files,
      "optimizer.safetensors": files["optimizer.safetensors"].slice(0, 999),
    };
    const broken = await runs.import(half, "four");
    await refuses("invalid-checkpoint", ["optimizer"], () => stepOf(context, broken));
    await broken.close();
    for (const name of ["one", "two", "three", "four"]) await runs.delete(name);
  },

  async "a zip refuses what it cannot hold"({ tinyloom, throughWorker, sample }) {
    if (throughWorker || sample) return; // written by the same code as in Node
    const { zip } = tinyloom;
    const blob = new Blob(["a"]);
    for (const name of ["", "folder/", "\ud83d.txt", "ü".repeat(32_768)]) {
      await refuses("invalid-options", ["zip", "cannot be a file's"], () => zip({ [name]: blob }));
    }
    const longest = `${"ü".repeat(32_767)}a`;
    equal((await zip({ [longest]: blob })).size, 30 + 16 + 46 + 22 + 2 * 65_535 + 1, "bytes");
    const many = Object.fromEntries(Array.from({ length: 65_535 }, (_, at) => [`${at}.txt`, blob]));
    await refuses("invalid-options", ["65535 files", "65534"], () => zip(many));
  },

  async "a zip refuses files that cannot be read, and names them"({ tinyloom, throughWorker }) {
    if (throughWorker) return; // these do not cross to a worker
    const { zip } = tinyloom;
    const gone = new Uint8Array(8);
    structuredClone(gone, { transfer: [gone.buffer] });
    class Closed extends Blob {
      slice() {
        throw new Error("closed");
      }
    }
    const files = {
      gone,
      "no bytes": { __proto__: Uint8Array.prototype },
      "no Blob": { __proto__: Blob.prototype, size: 0 },
      closed: new Closed(["a"]),
    };
    if (ArrayBuffer.prototype.resize) {
      const buffer = new ArrayBuffer(16, { maxByteLength: 32 });
      files.outside = new Uint8Array(buffer, 8, 8);
      buffer.resize(4);
    }
    for (const [name, content] of Object.entries(files)) {
      await refuses("invalid-options", ["zip", name], () => zip({ [name]: content }));
    }
    for (const given of [new Map([["a", new Blob(["x"])]]), [new Blob(["x"])], null, "a"]) {
      await refuses("invalid-options", "zip takes a plain object of files", () => zip(given));
    }
    if (!globalThis.process?.versions?.node) return;
    const [{ openAsBlob, mkdtempSync, rmSync, writeFileSync }, { tmpdir }] = await Promise.all([
      import("node:fs"),
      import("node:os"),
    ]);
    const folder = mkdtempSync(`${tmpdir()}/tinyloom-zip-`);
    try {
      writeFileSync(`${folder}/a`, "hello");
      const blob = await openAsBlob(`${folder}/a`);
      writeFileSync(`${folder}/a`, "changed since");
      await refuses("invalid-options", ["zip", "a.txt"], () => zip({ "a.txt": blob }));
    } finally {
      rmSync(folder, { recursive: true });
    }
  },

  async "an import takes a run's own files and nothing else"({ open, disk }) {
    const runs = await open("import");
    const victim = await runs.create("victim", { data: "precious" });
    await victim.close();
    const described = new Blob(['{"name":"guest"}']);
    const before = (await disk.list("import")).length;
    const outside = ["../../../evil.txt", `../../${victim.id}/data`, "a\\b", "manifest.json"];
    for (const name of outside) {
      const files = { "run.json": described, [name]: new Blob(["gone"]) };
      await refuses("invalid-options", ["config.json", "trainer_state.json"], () =>
        runs.import(files),
      );
    }
    const bytes = new TextEncoder().encode('{"name":"guest"}');
    const again = await runs.import({ "run.json": bytes, data: new TextEncoder().encode("abc") });
    equal([again.name, await (await again.data()).text()], ["guest", "abc"], "of bytes");
    await again.close();
    await runs.delete("guest");
    for (const wrong of [
      undefined,
      null,
      5,
      { "run.json": '{"name":"x"}' },
      { "run.json": null },
    ]) {
      await refuses("invalid-options", ["runs.import"], () => runs.import(wrong));
    }
    for (const text of ["{", "null", "5", '{"name":3}', "{}"]) {
      await refuses("invalid-checkpoint", ["run.json"], () =>
        runs.import({ "run.json": new Blob([text]) }),
      );
    }
    const state = { "run.json": described, "trainer_state.json": new Blob(["no JSON"]) };
    await refuses("invalid-checkpoint", ["trainer_state.json"], () => runs.import(state));
    equal((await disk.list("import")).length, before, "files after the refusals");
    const opened = await runs.open("victim");
    equal(await (await opened.data()).text(), "precious");
    await opened.close();
    await runs.delete("victim");
  },

  async "a zip with any bit of its list flipped is whole, or refused"({
    open,
    throughWorker,
    sample,
  }) {
    if (throughWorker || sample) return; // read by the same code as in Node
    const runs = await open("zips");
    const run = await runs.create("one", { data: "abc" });
    await run.close();
    const zip = new Uint8Array(await (await runs.export("one", { zip: true })).arrayBuffer());
    let taken = 0;
    for (let at = 0; at < zip.length; at++) {
      const damaged = zip.slice();
      damaged[at] ^= 1 << (at % 8);
      let back;
      try {
        back = await runs.import(new Blob([damaged]), "two");
      } catch (error) {
        equal(error.name, "TinyloomError", `byte ${at}: ${error.stack}`);
        continue;
      }
      taken += 1;
      equal(await (await back.data()).text(), "abc", `byte ${at}`);
      await back.close();
      await runs.delete("two");
    }
    await runs.delete("one");
    return `${taken} of ${zip.length} do not matter`;
  },
};
