// Files as a visitor brings them: a picked folder works, and of what is no checkpoint is said what it is.
import { equal, refuses } from "../../api/bodies/assert.mjs";
import { config } from "../../api/bodies/kit.mjs";

/** Where this body's cases run: see hosts.mjs. */
export const place = {
  whole: ["node", "chromium", "firefox"],
  why: "files, their lists and handles of folders are the host's",
};

const encode = (text) => new TextEncoder().encode(text);

/** A file as an input with `webkitdirectory` gives it. */
function picked(path, bytes) {
  const file = new File([bytes], path.split("/").at(-1));
  Object.defineProperty(file, "webkitRelativePath", { value: path });
  return file;
}

const inFolder = (folder, files) =>
  Object.entries(files).map(([name, bytes]) => picked(`${folder}/${name}`, bytes));

/** What a browser's input has; where there is none, a list like it. */
function fileList(files) {
  if (typeof DataTransfer !== "function")
    return { ...files, length: files.length, [Symbol.iterator]: () => files.values() };
  const transfer = new DataTransfer();
  for (const file of files) transfer.items.add(file);
  return transfer.files;
}

/** A handle of a folder: of the browser's, or one like it. */
async function folderOf(files) {
  const root = await globalThis.navigator?.storage?.getDirectory?.();
  if (root) {
    const folder = await root.getDirectoryHandle("picked", { create: true });
    for (const [name, bytes] of Object.entries(files)) {
      const handle = await folder.getFileHandle(name, { create: true });
      const stream = await handle.createWritable();
      await stream.write(bytes);
      await stream.close();
    }
    return folder;
  }
  const getFileHandle = async (name) => {
    if (!files[name]) throw new DOMException(`there is no ${name}`, "NotFoundError");
    return { kind: "file", name, getFile: async () => new File([files[name]], name) };
  };
  return { kind: "directory", name: "picked", getFileHandle };
}

async function saved({ tinyloom, runtime }) {
  const model = await tinyloom.Model.create(runtime, config, { seed: 3 });
  const files = await model.save();
  const logits = [...(await model.logits([1, 2, 3]))];
  model.free();
  return { files, logits };
}

export const cases = {
  async "the files of a picked folder are a checkpoint"(host) {
    const { tinyloom, runtime } = host;
    const { files, logits } = await saved(host);
    const expectLoads = async (source) => {
      const model = await tinyloom.Model.fromPretrained(runtime, source);
      equal([...(await model.logits([1, 2, 3]))], logits, "logits");
      model.free();
    };
    await expectLoads(inFolder("my-model", files));
    await expectLoads([picked("models/.DS_Store", "x"), ...inFolder("models/mine/last", files)]);
    await expectLoads(
      fileList(Object.entries(files).map(([name, bytes]) => new File([bytes], name))),
    );
    await expectLoads(await folderOf(files));
    equal((await tinyloom.readConfig(inFolder("a", files))).vocab_size, config.vocab_size);
    // A folder with more in it.
    const deeper = [picked("hub/refs/main", "x"), ...inFolder("hub/snapshots/1f", files)];
    await refuses("invalid-checkpoint", ["snapshots/1f/config.json", "that one folder"], () =>
      tinyloom.Model.fromPretrained(runtime, deeper),
    );
    const model = await tinyloom.Model.create(runtime, config, { seed: 3 });
    const adapter = await tinyloom.Adapter.create(model, { rank: 2 });
    const again = await tinyloom.Adapter.load(model, inFolder("lora", await adapter.save()));
    equal(again.options.rank, 2, "rank of the adapter in a picked folder");
    const trainer = await tinyloom.Trainer.create(model, { tokensPerStep: 16 });
    const run = inFolder("run", await trainer.save());
    model.free();
    const resumed = await tinyloom.Trainer.resume(runtime, run);
    equal(resumed.steps, 0, "steps of the run in a picked folder");
    resumed.model.free();
  },

  async "a tokenizer and a dataset of a picked folder"({ tinyloom }) {
    const { BpeTokenizer, Dataset, Tokenizer } = tinyloom;
    const bpe = await BpeTokenizer.train("the cat and the hat ".repeat(20), { vocabSize: 270 });
    const tokenizer = await Tokenizer.fromPretrained(inFolder("bpe", bpe.save()));
    equal([...tokenizer.encode("the cat")], [...bpe.encode("the cat")], "ids");
    const data = await Dataset.fromText("the cat and the hat ".repeat(20), bpe);
    const again = await Dataset.load(inFolder("data", await data.save()));
    equal(again.hash, data.hash, "hash of the data");
  },

  async "what is no checkpoint is told by its bytes"(host) {
    const { tinyloom, runtime } = host;
    const { files } = await saved(host);
    const { "config.json": configFile, "model.safetensors": weights } = files;
    const wrong = (words, source) =>
      refuses("invalid-checkpoint", words, () => tinyloom.Model.fromPretrained(runtime, source));
    const zip = encode("PK\x03\x04\x14 a folder");
    const unpack = ["a zip archive", "unpack it"];
    await wrong(["m.zip", ...unpack], new File([zip], "m.zip"));
    await wrong(["the given file", ...unpack], new Blob([zip]));
    await wrong(["the given file", ...unpack], zip);
    await wrong(["config.json is missing", "m.zip", ...unpack], { "m.zip": zip });
    await wrong(["model.safetensors", ...unpack], { ...files, "model.safetensors": zip });
    const torch = encode("PK\x03\x04\x14 archive/data.pkl");
    await wrong(["PyTorch", "save_pretrained"], new File([torch], "pytorch_model.bin"));
    const alone = ["a safetensors file", "config.json"];
    await wrong(["model.safetensors", ...alone], new File([weights], "model.safetensors"));
    await wrong(alone, { "model.safetensors": weights });
    await wrong(["JSON", "all files of its folder"], new File([configFile], "config.json"));
    const note = encode("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n");
    await wrong(["Git LFS", "git lfs pull"], { ...files, "model.safetensors": note });
    const page = encode("<!doctype html><title>Not found</title>");
    await wrong(["a web page", "address"], new Blob([page]));
    await wrong(["a web page", "address"], { ...files, "model.safetensors": page });
    const names = ["config.json is missing", "a.txt, b.txt"];
    await wrong(names, { "a.txt": page, "b.txt": page });
    await wrong("no file", []);
  },

  async "a bare name is told how the hub's repositories are named"({ tinyloom, runtime }) {
    const options = { fetch: async () => new Response("", { status: 404 }) };
    const model = await tinyloom.Model.create(runtime, config);
    for (const load of [
      (name) => tinyloom.Model.fromPretrained(runtime, name, options),
      (name) => tinyloom.Tokenizer.fromPretrained(name, options),
      (name) => tinyloom.Adapter.load(model, name, options),
      (name) => tinyloom.readConfig(name, options),
    ]) {
      const wrong = (words, name) => refuses("invalid-checkpoint", words, () => load(name));
      await wrong(["missing", "hf:OWNER/SmolLM2-135M"], "SmolLM2-135M");
      await wrong(["missing", "hf:HuggingFaceTB/SmolLM2-135M"], "HuggingFaceTB/SmolLM2-135M");
      await wrong(["missing", "the folder", "model.safetensors"], "./mine/model.safetensors");
    }
    model.free();
  },

  async "what has no files is refused"({ tinyloom, runtime }) {
    const wrong = (word, source) =>
      refuses("invalid-options", ["base URL", word], () =>
        tinyloom.Model.fromPretrained(runtime, source),
      );
    await wrong("Map", new Map([["config.json", new Blob(["{}"])]]));
    await wrong("array", [1, 2]);
    await wrong("Date", new Date());
  },

  async "files that are no JSON are named, and the place in them"(host) {
    const { tinyloom, runtime } = host;
    const { files } = await saved(host);
    const { Adapter, Dataset, Model, Tokenizer, Trainer } = tinyloom;
    const broken = encode('{\n "vocab_size": 4,\n}');
    // Engines word it each in its way; Safari tells no place.
    const where = /line 3,? column 1/;
    const wrong = async (code, name, work) => {
      const { message } = await refuses(code, `${name} is not JSON`, work);
      equal(where.test(message), true, message);
    };
    const load = (text, name = "config.json") =>
      Model.fromPretrained(runtime, { ...files, [name]: text });
    await wrong("invalid-config", "config.json", () => load(broken));
    await wrong("invalid-config", "generation_config.json", () =>
      load(broken, "generation_config.json"),
    );
    await wrong("invalid-checkpoint", "tokenizer.json", () =>
      Tokenizer.fromPretrained({ "tokenizer.json": broken }),
    );
    const index = "model.safetensors.index.json";
    await wrong("invalid-checkpoint", index, () =>
      Model.fromPretrained(runtime, { "config.json": files["config.json"], [index]: broken }),
    );
    await wrong("invalid-checkpoint", "dataset.json", () =>
      Dataset.load({ "dataset.json": broken }),
    );
    const model = await load(files["config.json"]);
    const adapter = await Adapter.create(model, { rank: 2 });
    const lora = await adapter.save();
    await wrong("invalid-config", "adapter_config.json", () =>
      Adapter.load(model, { ...lora, "adapter_config.json": broken }),
    );
    const trainer = await Trainer.create(model, { tokensPerStep: 16 });
    const run = await trainer.save();
    model.free();
    await refuses("invalid-checkpoint", ["trainer_state.json", "line 3 column 1"], () =>
      Trainer.resume(runtime, { ...run, "trainer_state.json": broken }),
    );
    const config = (words, text) =>
      refuses("invalid-config", ["config.json", ...words], () => load(encode(text)));
    await config(["a web page", "address"], "<!doctype html>");
    await config(["empty"], "");
    await config(["Git LFS", "git lfs pull"], "version https://git-lfs.github.com/spec/v1\n");
    await config(["an array"], "[]");
    await config(["null"], "null");
  },
};
