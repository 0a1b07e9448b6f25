// LoRA adapters against PEFT: its files, logits, gradients of A and B, ten losses and merged weights of the adapters
// in tests/reference/fixtures/adapters. One has dropout; PEFT then had the masks that tinyloom draws. Three are on
// packed bases; PEFT then had what the packed matrices stand for, as Python unpacks them.
import { close, equal, ok, refuses, sameBytes } from "../../api/bodies/assert.mjs";
import { openFile } from "../../api/bodies/kit.mjs";
import { readReference } from "../../api/bodies/reference.mjs";
import { filesOf as checkpointOf } from "./fixtures.mjs";
import { exportedAsMerged } from "./packed.mjs";

const NAMES = [
  "llama",
  "qwen2-rslora",
  "qwen3",
  "gpt2",
  "gpt-neo",
  "gpt-neox",
  "gemma2",
  "llama-dropout",
];
const PACKED = ["packed-int8", "packed-int4", "packed-gemma3-int4"];
/** Checkpoints in halves that have matrices in another order, or tensors under other names. */
const HALVES = ["gpt2-bf16", "gpt2-bare-f16-sharded", "gpt-neox-bf16", "gpt-neox-f16-sharded"];
export const PEFT = ["adapter_config.json", "adapter_model.safetensors"];

const json = async (path) => JSON.parse(new TextDecoder().decode(await readReference(path)));

async function filesOf(folder, names) {
  const files = {};
  for (const name of names) files[name] = await readReference(`${folder}/${name}`);
  return files;
}

/** The tensors of a safetensors file by name, as typed arrays. */
function tensorsOf(bytes) {
  const { header, data } = openFile(bytes);
  const tensors = {};
  for (const [key, { dtype, data_offsets: range }] of Object.entries(header)) {
    if (key === "__metadata__") continue;
    const { buffer } = data.slice(...range);
    tensors[key] = dtype === "U32" ? new Uint32Array(buffer) : new Float32Array(buffer);
  }
  return tensors;
}

/** A base that transformers wrote, and the adapter that PEFT wrote for it. */
export async function fixture({ tinyloom, runtime }, name) {
  const folder = `adapters/${name}`;
  const losses = await json(`${folder}/losses.json`);
  const base = await filesOf(losses.base, ["config.json", "model.safetensors"]);
  const { weights = "f32" } = losses;
  const model = await tinyloom.Model.fromPretrained(runtime, base, { weights });
  equal(model.weights, weights, "format of the weights");
  const files = await filesOf(folder, PEFT);
  const adapter = await tinyloom.Adapter.load(model, files);
  const [oracle, merged] = await Promise.all(
    ["oracle", "merged"].map(async (file) =>
      tensorsOf(await readReference(`${folder}/${file}.safetensors`)),
    ),
  );
  return { model, adapter, base, files, oracle, merged, losses };
}

/** Logits of each of the packed documents, in one row. */
async function logitsOf(model, { tokens, documents }, options) {
  const starts = [...new Set(documents)];
  const rows = [];
  for (const [at, start] of starts.entries()) {
    rows.push(await model.logits(tokens.slice(start, starts[at + 1]), options));
  }
  return Float32Array.from(rows.flatMap((row) => [...row]));
}

const furthest = (a, b) => a.reduce((most, x, i) => Math.max(most, Math.abs(x - b[i])), 0);
const norm = (a) => Math.sqrt(a.reduce((sum, x) => sum + x * x, 0));
const digits = (x) => x.toExponential(1);

/** Holds every gradient of A and B to PyTorch's; gives the largest distance in L2. */
async function checkGradients(trainer, oracle) {
  const gradients = await trainer.gradients();
  const expected = Object.keys(oracle).filter((key) => key.startsWith("grad."));
  const names = expected.map((key) => key.slice("grad.".length));
  equal(Object.keys(gradients).sort(), names.sort(), "names of gradients");
  let worst = 0;
  for (const [name, gradient] of Object.entries(gradients)) {
    const wanted = oracle[`grad.${name}`];
    equal(gradient.length, wanted.length, `size of the gradient of ${name}`);
    const off = norm(gradient.map((x, i) => x - wanted[i])) / norm(wanted);
    ok(off <= 1e-3, `the gradient of ${name} is ${off} off in L2`);
    worst = Math.max(worst, off);
  }
  return worst;
}

async function againstPeft(host, name) {
  const { model, adapter, files, oracle, losses } = await fixture(host, name);
  const { tokens, targets, documents } = oracle;
  const plain = await logitsOf(model, oracle);
  const logits = await logitsOf(model, oracle, { adapter });
  const off = furthest(logits, oracle.logits);
  ok(off <= 1e-4, `the logits differ by ${off}`);
  ok(furthest(plain, oracle.logits) > 1e-2, "the adapter changes the logits");
  const saved = await adapter.save();
  equal(Object.keys(saved), PEFT, "names of the saved files");
  const [before, after] = [files, saved].map((own) => tensorsOf(own["adapter_model.safetensors"]));
  for (const tensor of Object.keys(before)) sameBytes(after[tensor], before[tensor], tensor);
  const again = await host.tinyloom.Adapter.load(model, saved);
  equal(again.options, adapter.options, "options");
  sameBytes(await logitsOf(model, oracle, { adapter: again }), logits, "of the saved adapter");
  again.free();
  const camel = (key) => key.replace(/_(.)/g, (_, letter) => letter.toUpperCase());
  const options = Object.entries(losses.options).map(([key, value]) => [camel(key), value]);
  const trainer = await host.tinyloom.Trainer.create(adapter, {
    ...Object.fromEntries(options),
    warmupSteps: 0,
    tokensPerStep: tokens.length,
  });
  let [gradient, loss] = [0, 0];
  for (const expected of losses.steps) {
    const m = await trainer.step({ tokens, targets, documents });
    close(m.loss, expected.loss, 1e-4, `loss of step ${expected.step}`);
    close(m.gradNorm / expected.grad_norm, 1, 1e-3, `gradient norm of step ${expected.step}`);
    loss = Math.max(loss, Math.abs(m.loss - expected.loss));
    if (m.step === 1) gradient = await checkGradients(trainer, oracle);
  }
  sameBytes(await logitsOf(model, oracle), plain, "the model's own logits");
  await checkDropout(host, { model, adapter, files, oracle, trainer });
  model.free();
  return `logits within ${digits(off)}, gradients within ${digits(gradient)} in L2, ten losses within ${digits(loss)}`;
}

/** Steps alone leave inputs out; the same adapter loaded without dropout has another loss. */
async function checkDropout({ tinyloom }, { model, adapter, files, oracle, trainer }) {
  const { dropout } = adapter.options;
  if (dropout === 0) return;
  equal(dropout, 0.2, "dropout");
  const [again, without] = [{}, { dropout: 0 }].map((options) =>
    tinyloom.Adapter.load(model, files, options),
  );
  const { tokens, targets, documents } = oracle;
  const loss = async (loaded) => {
    const options = { seed: trainer.options.seed, tokensPerStep: tokens.length };
    const own = await tinyloom.Trainer.create(await loaded, options);
    return (await own.step({ tokens, targets, documents })).loss;
  };
  const [left, whole] = [await loss(again), await loss(without)];
  ok(Math.abs(left - whole) > 1e-3, `${left} with dropout, ${whole} without`);
  close(left, oracle.loss[0], 1e-4, "loss with dropout");
}

async function mergedAsPeft(host, name) {
  const { model, adapter, oracle, merged } = await fixture(host, name);
  const before = tensorsOf((await model.save({ dtype: "f32" }))["model.safetensors"]);
  await adapter.merge();
  const after = tensorsOf((await model.save({ dtype: "f32" }))["model.safetensors"]);
  const { worst, changed } = holdMerged(after, merged, before);
  const off = furthest(await logitsOf(model, oracle), oracle.logits);
  ok(off <= 1e-4, `the logits differ by ${off}`);
  model.free();
  return `${changed} merged weights within ${digits(worst)}, logits within ${digits(off)}`;
}

/** A packed base is merged from its checkpoint, an f32 one gives the same that way. */
async function exportedAsPeft(host, name) {
  const { model, adapter, base, oracle, merged: expected } = await fixture(host, name);
  const plain = await host.tinyloom.Model.fromPretrained(host.runtime, base);
  const before = tensorsOf((await plain.save({ dtype: "f32" }))["model.safetensors"]);
  if (model.weights !== "f32") {
    const words = [`holds its matrices in ${model.weights}`, "saveMerged"];
    await refuses("invalid-options", words, () => adapter.merge());
    await refuses("invalid-options", words, () => model.save());
  }
  const files = await adapter.saveMerged(base, { dtype: "f32" });
  const after = tensorsOf(files["model.safetensors"]);
  equal(Object.keys(after).sort(), Object.keys(before).sort(), "names of the tensors");
  const { worst, changed } = holdMerged(after, expected, before);
  const merged = await host.tinyloom.Model.fromPretrained(host.runtime, files);
  equal(merged.config, plain.config, "config");
  if (model.weights === "f32") {
    const off = furthest(await logitsOf(merged, oracle), oracle.logits);
    ok(off <= 1e-4, `the logits differ by ${off}`);
  }
  for (const one of [plain, merged, model]) one.free();
  return `${changed} exported weights within ${digits(worst)}`;
}

/** Holds merged tensors to PEFT's, and the others to what they were. */
function holdMerged(after, merged, before) {
  let [worst, changed] = [0, 0];
  for (const [tensor, values] of Object.entries(after)) {
    const wanted = merged[tensor];
    if (!wanted) {
      sameBytes(values, before[tensor], tensor);
      continue;
    }
    const off = furthest(values, wanted);
    ok(off <= 2e-6, `the merged ${tensor} differs by ${off}`);
    worst = Math.max(worst, off);
    changed += 1;
  }
  equal(changed, Object.keys(merged).length, "merged tensors");
  return { worst, changed };
}

/** Where this body's cases run: see hosts.mjs. */
export const place = {
  whole: ["node"],
  why: "as for fixtures",
  core: 12,
  smoke: ["packed-int4: exported", "gemma2: merged"],
  limits: { node: "default" },
};

export const cases = {
  ...Object.fromEntries(
    [...NAMES, ...PACKED].map((name) => [
      `${name}: logits, gradients and ten losses`,
      (host) => againstPeft(host, name),
    ]),
  ),
  ...Object.fromEntries(
    NAMES.map((name) => [`${name}: merged`, (host) => mergedAsPeft(host, name)]),
  ),
  ...Object.fromEntries(
    ["llama", "gpt2", "gpt-neo", "gpt-neox", ...PACKED].map((name) => [
      `${name}: exported`,
      (host) => exportedAsPeft(host, name),
    ]),
  ),
  ...Object.fromEntries(
    HALVES.map((name) => [
      `${name}: exported as merged`,
      async (host) => {
        const { changed, worst } = await exportedAsMerged(host, await checkpointOf(name));
        ok(changed >= 8, `${changed} tensors changed`);
        return `${changed} exported weights within ${digits(worst)}`;
      },
    ]),
  ),
};
