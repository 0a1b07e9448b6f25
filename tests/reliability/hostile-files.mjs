// Damaged files through the API, in Node with Dawn. Each loads as the whole one does, or is refused by name.
import { createHash } from "node:crypto";
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { damagedFile } from "./hostile-random.mjs";

const CONFIG = {
  model_type: "llama",
  vocab_size: 280,
  hidden_size: 8,
  intermediate_size: 8,
  num_hidden_layers: 2,
  num_attention_heads: 2,
  num_key_value_heads: 1,
  max_position_embeddings: 64,
  tie_word_embeddings: true,
};
const TEXT = "the cat sat on the mat, and a dog saw the owl. ".repeat(12);

const decode = (bytes) => new TextDecoder().decode(bytes);
const sum = (value) => createHash("sha1").update(value).digest("hex").slice(0, 12);
const sums = (files) =>
  JSON.stringify(Object.entries(files).map(([name, bytes]) => [name, sum(bytes)]));

/** A value with its keys in order. */
const sorted = (value) => {
  if (Array.isArray(value)) return value.map(sorted);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.keys(value)
      .sort()
      .map((key) => [key, sorted(value[key])]),
  );
};
const same = (a, b) => JSON.stringify(sorted(a)) === JSON.stringify(sorted(b));

/** Where a config is not what its file says: a field that is there in both is as it was written. */
function contradiction(said, config) {
  for (const [key, value] of Object.entries(said)) {
    if (!(key in config) || value === null || /dtype$|^architectures$/.test(key)) continue; // the tensors say
    const inner = typeof value === "object" && typeof config[key] === "object";
    const words = `${key} is ${JSON.stringify(config[key])}, and the file says ${JSON.stringify(value)}`;
    const found = inner
      ? contradiction(value, config[key] ?? {})
      : same(config[key], value)
        ? undefined
        : words;
    if (found) return found;
  }
  return undefined;
}

/** A loaded model's config, and the files that it saves. */
async function readModel(Model, runtime, given) {
  const loaded = await Model.fromPretrained(runtime, given);
  try {
    return { config: loaded.config, files: await loaded.save() };
  } finally {
    loaded.free();
  }
}

/** What is loaded, and what it has to be: `load` gives what `whole` gave of the undamaged files. */
export async function formats(tinyloom, runtime) {
  const { BpeTokenizer, Dataset, Model, Tokenizer, Trainer } = tinyloom;
  const tokenizer = await BpeTokenizer.train(TEXT, { vocabSize: 280 });
  const model = await Model.create(runtime, CONFIG, { seed: 1 });
  const trainer = await Trainer.create(model, { tokensPerStep: 32, totalSteps: 40, seed: 1 });
  const data = Dataset.fromTokens(tokenizer.encode(TEXT), { sequenceLength: 16, seed: 2 });
  for await (const _ of trainer.run(data, { steps: 2 }));
  const modelFiles = await model.save();
  const trainerFiles = await trainer.save();
  const documents = await Dataset.fromDocuments(
    [TEXT.slice(0, 90), TEXT.slice(90, 140), TEXT.slice(140, 300)],
    tokenizer,
    { sequenceLength: 16, validationFraction: 0.1, seed: 4 },
  );
  const datasetFiles = await documents.save();
  const tokenizerFiles = tokenizer.save();
  model.free();

  const loadModel = (files) => readModel(Model, runtime, files);
  const only = (files, name) => ({ files, names: [name] });
  return {
    safetensors: {
      ...only(modelFiles, "model.safetensors"),
      load: async (files) => sums((await loadModel(files)).files),
    },
    config: {
      ...only(modelFiles, "config.json"),
      load: async (files) => {
        const { config, files: saved } = await loadModel(files);
        // What the file says holds: a field that is known is as it was written, or null for a default.
        const said = JSON.parse(decode(files["config.json"]));
        const broken = contradiction(said, config);
        return broken ?? sum(saved["model.safetensors"]);
      },
    },
    trainer: {
      files: trainerFiles,
      names: Object.keys(trainerFiles),
      load: async (files) => {
        const resumed = await Trainer.resume(runtime, files);
        try {
          const saved = await resumed.save();
          delete saved["config.json"]; // written anew, and held to its checksum
          return sums(saved);
        } finally {
          resumed.model.free();
        }
      },
    },
    tokenizer: {
      ...only(tokenizerFiles, "tokenizer.json"),
      // It has no checksum, so its words are what they are; bytes that they cannot spell are refused.
      load: async (files) => {
        const loaded = await Tokenizer.fromPretrained(files);
        const ids = loaded.encode(TEXT);
        const wrong = [...ids].find((id) => !(id >= 0 && id < loaded.vocabSize));
        if (wrong !== undefined) return `the id ${wrong}`;
        // Of another library's there may be texts that its words cannot spell, as in that library.
        return !(loaded instanceof BpeTokenizer) || loaded.decode(ids) === TEXT;
      },
    },
    dataset: {
      files: datasetFiles,
      names: Object.keys(datasetFiles).filter((name) => !name.startsWith("tokenizer")),
      load: async (files) => {
        const loaded = await Dataset.load(files);
        const saved = await loaded.save();
        const shown = [loaded.hash, loaded.tokens, loaded.documents, loaded.validationTokens];
        loaded.free();
        return `${shown} ${sums(saved)}`;
      },
    },
    run: await runFormat(tinyloom, runtime, trainerFiles),
  };
}

/** Files of a run in a folder, below it, as `[name, bytes]`. */
function below(folder, prefix = "") {
  return readdirSync(join(folder, prefix)).flatMap((name) => {
    const path = join(prefix, name);
    return statSync(join(folder, path)).isDirectory()
      ? below(folder, path)
      : [[path, new Uint8Array(readFileSync(join(folder, path)))]];
  });
}

/** A stored run with two checkpoints: one that is damaged gives way to the other. */
async function runFormat({ Runs, Trainer }, runtime, trainerFiles) {
  const folder = mkdtempSync(join(tmpdir(), "tinyloom-hostile-"));
  const open = () => Runs.open("damaged", { folder });
  const run = await (await open()).create("one", {
    data: "data",
    tokenizer: "{}",
    options: { a: 1 },
  });
  const trainer = await Trainer.resume(runtime, trainerFiles);
  for (const step of [1, 2]) {
    await trainer.save({ to: run });
    await run.addSample({ step, text: "s" });
    await run.addMetrics({ step, loss: step });
  }
  await run.close();
  trainer.model.free();
  const files = Object.fromEntries(below(folder).filter(([name]) => !/lock/.test(name)));
  const parts = {
    resume: async (opened) => {
      const resumed = await Trainer.resume(runtime, opened);
      try {
        return sums(await resumed.save());
      } finally {
        resumed.model.free();
      }
    },
    data: async (opened) => (await opened.data()).text(),
    tokenizer: (opened) => opened.tokenizer(),
    metrics: async (opened) => JSON.stringify(await opened.metrics()),
    samples: async (opened) => JSON.stringify(await opened.samples()),
    options: (opened) => JSON.stringify(opened.options),
  };
  return {
    files,
    names: Object.keys(files),
    end: () => rmSync(folder, { recursive: true }),
    /** Each part by itself, so that one that is refused hides no other. */
    load: async (damaged, name) => {
      writeFileSync(join(folder, name), damaged[name]);
      try {
        const runs = await open();
        const opened = await runs.open("one");
        const found = {};
        try {
          for (const [part, read] of Object.entries(parts)) {
            found[part] = await (async () => read(opened))().catch((error) => error);
          }
        } finally {
          await opened.close();
        }
        return found;
      } finally {
        writeFileSync(join(folder, name), files[name]);
      }
    },
  };
}

/** What is wrong with an error, if anything. */
export function wrongError(error) {
  if (error?.name !== "TinyloomError") return `not a TinyloomError: ${error?.stack ?? error}`;
  if (error.code === "internal") return `internal: ${error.message}`;
  return undefined;
}

/** Lines at a log's end that were cut off are left out, as after a crash while they were written. */
const isCutLog = (part, value, whole) =>
  /^(metrics|samples)$/.test(part) &&
  JSON.parse(value).every((entry, at) => same(entry, JSON.parse(whole)[at]));

/** What is wrong with what a damaged file gave, if anything. */
export function wrongResult(found, whole) {
  if (typeof whole !== "object") return found === whole ? undefined : `a silent change: ${found}`;
  for (const [part, value] of Object.entries(found)) {
    const wrong =
      value instanceof Error
        ? wrongError(value)
        : value === whole[part] || isCutLog(part, value, whole[part])
          ? undefined
          : `a silent change of ${part}: ${value}`;
    if (wrong) return wrong;
  }
  return undefined;
}

/** Whether a file has lost the checksum that it was saved with: it is then as other programs write it. */
function withoutSum(name, bytes) {
  try {
    if (name.endsWith(".json")) return !("crc32" in JSON.parse(decode(bytes)));
    if (!name.endsWith(".safetensors")) return false;
    const length = Number(new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0, true));
    const { __metadata__: metadata = {} } = JSON.parse(decode(bytes.subarray(8, 8 + length)));
    return !("crc32" in metadata && "crc32_header" in metadata);
  } catch {
    return false;
  }
}

/** Formats whose files say by a checksum what they were. */
const SUMMED = ["safetensors", "trainer", "dataset"];

/** Damages one file of a format; gives `{ loaded, wrong }`. */
export async function attempt(kind, { files, names, load }, whole, chance) {
  const name = chance.of(names);
  const bytes = damagedFile(name, files[name], chance);
  try {
    const found = await load({ ...files, [name]: bytes }, name);
    const other = SUMMED.includes(kind) && withoutSum(name, bytes);
    return { name, loaded: true, wrong: other ? undefined : wrongResult(found, whole), bytes };
  } catch (error) {
    return { name, loaded: false, wrong: wrongError(error), bytes };
  }
}
