// Against PyTorch: logits, hidden states, attention, loss, gradients and ten AdamW steps of the models in
// tests/reference, and the way back. Its README describes the files.
import { close, equal, ok, sameBytes } from "../../api/bodies/assert.mjs";
import { openFile, sha256 } from "../../api/bodies/kit.mjs";
import { readReference, referenceUrl } from "../../api/bodies/reference.mjs";
import { MODELS } from "../../reference/fixtures/names.mjs";
import { OPTIMIZERS } from "../../reference/fixtures/optimizers/names.mjs";

const IGNORED = 0xffff_ffff;
const IN_PAGE = typeof process === "undefined";

const TRAINED = MODELS.filter((name) => !/16/.test(name));

/** Models whose own dropout has a fixture: the rates as an option, or in the config. */
const DROPPED = ["gpt2", "gpt-neo", "gpt-neox"];

/** A model whose weights come from a seed alone, for the way back. */
const FRESH = {
  vocab_size: 53,
  hidden_size: 32,
  intermediate_size: 48,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  max_position_embeddings: 64,
  rope_theta: 5000,
  tie_word_embeddings: true,
};

/** The oracle's tensors by name, as typed arrays. */
const oracleOf = (name) => tensorsOf(`${name}/oracle.safetensors`);

export async function tensorsOf(path) {
  const { header, data } = openFile(await readReference(path));
  const tensors = {};
  for (const [key, { dtype, data_offsets: range }] of Object.entries(header)) {
    if (key === "__metadata__") continue;
    const { buffer } = data.slice(...range);
    tensors[key] = dtype === "U32" ? new Uint32Array(buffer) : new Float32Array(buffer);
  }
  return tensors;
}

/** The checkpoint's files with that config. */
export async function filesOf(name, config = "config.json") {
  const files = { "config.json": await readReference(`${name}/${config}`) };
  let weights = ["model.safetensors"];
  if (name.includes("sharded")) {
    const index = "model.safetensors.index.json";
    const text = new TextDecoder().decode(await readReference(`${name}/${index}`));
    weights = [index, ...new Set(Object.values(JSON.parse(text).weight_map))];
  }
  for (const file of weights) files[file] = await readReference(`${name}/${file}`);
  return files;
}

/** Bounds of the packed documents, as [begin, end). */
function spansOf({ documents }) {
  const starts = [...new Set(documents)];
  return starts.map((start, i) => [start, starts[i + 1] ?? documents.length]);
}

/** Logits of all documents, each on its own, in one row. */
async function logitsOf(model, oracle) {
  const rows = [];
  for (const span of spansOf(oracle)) rows.push(await model.logits(oracle.tokens.slice(...span)));
  return Float32Array.from(rows.flatMap((row) => [...row]));
}

/** The mean over the targets that count, from the losses of the documents. */
async function lossOf(model, oracle) {
  let [sum, count] = [0, 0];
  for (const span of spansOf(oracle)) {
    const targets = oracle.targets.slice(...span);
    const counted = targets.filter((target) => target !== IGNORED).length;
    if (counted === 0) continue;
    sum += counted * (await model.loss(oracle.tokens.slice(...span), targets));
    count += counted;
  }
  return sum / count;
}

const furthest = (a, b) => a.reduce((most, x, i) => Math.max(most, Math.abs(x - b[i])), 0);
const norm = (a) => Math.sqrt(a.reduce((sum, x) => sum + x * x, 0));
/** Distance in L2, relative to the expected array's length. */
const apart = (a, b) => norm(a.map((x, i) => x - b[i])) / norm(b);

/** Loads a fixture: in a page, its single files over HTTP. */
async function load({ tinyloom, runtime }, name) {
  const overHttp = IN_PAGE && !name.includes("sharded");
  const source = overHttp ? referenceUrl(`${name}/`) : await filesOf(name);
  return tinyloom.Model.fromPretrained(runtime, source);
}

/** What `save` wrote has the bytes that transformers once read: the same on every adapter. */
async function wayBack(host, name, model, tokens) {
  const files = await model.save({ dtype: "f32" });
  await host.keep?.(name, files, tokens, await model.logits(tokens));
  const recorded = new TextDecoder().decode(await readReference(`${name}/saved.sha256`));
  let found = "";
  for (const file of ["config.json", "model.safetensors"]) {
    found += `${await sha256(files[file])}  ${file}\n`;
  }
  equal(found, recorded, `the saved files are not those of ${name}/saved.sha256`);
}

/** Of each family, under these names, whatever its own are; its own alone are what a copy has. */
function checkSizes({ config, parameters }) {
  const { vocab_size, hidden_size, num_hidden_layers, num_attention_heads } = config;
  const [, embedding] = Object.entries(parameters).find(([name]) =>
    /\b(embed_\w+|wte)\./.test(name),
  );
  equal([vocab_size, hidden_size], embedding, "sizes of the embedding");
  const layers = Object.keys(parameters).map((name) => /\.(\d+)\./.exec(name)?.[1] ?? -1);
  equal(num_hidden_layers, 1 + Math.max(...layers), "layers");
  equal(hidden_size % num_attention_heads, 0, "heads");
  ok(config.max_position_embeddings >= 32 && config.initializer_range > 0, "positions, range");
  equal(typeof config.tie_word_embeddings, "boolean", "tied");
  equal("hidden_size" in { ...config }, config.model_type !== "gpt2", "a copy has its own names");
}

async function inference(host, name) {
  const oracle = await oracleOf(name);
  const model = await load(host, name);
  checkSizes(model);
  const logits = await logitsOf(model, oracle);
  equal(logits.length, oracle.logits.length, "number of logits");
  const difference = furthest(logits, oracle.logits);
  ok(difference <= 1e-4, `the logits differ by ${difference}`);
  const v4 = await filesOf(name, "config.v4.json");
  const same = await host.tinyloom.Model.fromPretrained(host.runtime, v4);
  const { transformers_version: _, ...spelled } = same.config;
  // Version 5 writes null for a window that counts for nothing.
  if (spelled.use_sliding_window === false) delete spelled.sliding_window;
  for (const field of Object.keys(spelled)) {
    if (field in model.config) equal(spelled[field], model.config[field], `${field} of version 4`);
  }
  sameBytes(await logitsOf(same, oracle), logits, "logits under config.v4.json");
  same.free();
  let detail = `logits within ${difference.toExponential(1)}`;
  if (oracle.loss) {
    const loss = await lossOf(model, oracle);
    close(loss, oracle.loss[0], 1e-4, "loss");
    detail += `, loss within ${Math.abs(loss - oracle.loss[0]).toExponential(1)}`;
  }
  const [begin, end] = spansOf(oracle).sort(([a, b], [c, d]) => d - c - (b - a))[0];
  await wayBack(host, name, model, oracle.tokens.slice(begin, end));
  model.free();
  return detail;
}

/** At temperature 0 the text is that of transformers' `generate`, token for token. */
async function greedyText(host, name) {
  const expected = JSON.parse(new TextDecoder().decode(await readReference(`${name}/greedy.json`)));
  const model = await load(host, name);
  const tokens = [];
  const options = { maxTokens: expected.tokens.length, temperature: 0, stopTokens: [] };
  for await (const { token } of model.generate(expected.prompt, options)) tokens.push(token);
  model.free();
  equal(tokens, expected.tokens, "greedy tokens");
  return `${tokens.length} tokens, the closest choice by ${expected.least_margin.toExponential(1)}`;
}

/**
 * Every hidden state and head of attention of one text. Firefox notices a result after 100 ms: in a page
 * one head of each layer stands for the others.
 */
async function looks(host, name) {
  const oracle = await tensorsOf(`look/${name}.safetensors`);
  const { tokens } = oracle;
  const model = await load(host, name);
  const { config } = model;
  const { num_hidden_layers: layers, num_attention_heads: heads } = config;
  const worst = { states: 0, attention: 0 };
  const hold = (what, kind, got, all, index) => {
    const expected = all.slice(index * got.length, (index + 1) * got.length);
    equal(got.length, expected.length, `numbers of ${what}`);
    const difference = furthest(got, expected);
    ok(difference <= 1e-4, `${what} differs by ${difference}`);
    worst[kind] = Math.max(worst[kind], difference);
  };
  for (let layer = 0; layer <= layers; layer++) {
    const got = await model.hiddenStates(tokens, { layer });
    hold(`hidden state ${layer}`, "states", got, oracle.hidden_states, layer);
  }
  for (let layer = 0; layer < layers; layer++) {
    const asked = IN_PAGE
      ? [(layer + 1) % heads]
      : Array.from({ length: heads }, (_, head) => head);
    for (const head of asked) {
      const got = await model.attention(tokens, { layer, head });
      const what = `attention of layer ${layer}, head ${head}`;
      hold(what, "attention", got, oracle.attention, layer * heads + head);
    }
  }
  model.free();
  const digits = (x) => x.toExponential(1);
  return `hidden states within ${digits(worst.states)}, attention within ${digits(worst.attention)}`;
}

/** Options under their names in the API. */
function trainerOptions(options, tokens) {
  const camel = (name) => name.replace(/_(.)/g, (_, letter) => letter.toUpperCase());
  const renamed = Object.entries(options).map(([name, value]) => [camel(name), value]);
  return { ...Object.fromEntries(renamed), warmupSteps: 0, tokensPerStep: tokens };
}

async function checkGradients(trainer, oracle) {
  const gradients = await trainer.gradients();
  const expected = Object.keys(oracle).filter((key) => key.startsWith("grad."));
  equal(
    Object.keys(gradients).sort(),
    expected.map((key) => key.slice("grad.".length)).sort(),
    "names of gradients",
  );
  let worst = 0;
  for (const [name, gradient] of Object.entries(gradients)) {
    const wanted = oracle[`grad.${name}`];
    equal(gradient.length, wanted.length, `size of the gradient of ${name}`);
    const difference = apart(gradient, wanted);
    ok(difference <= 1e-3, `the gradient of ${name} is ${difference} off in L2`);
    worst = Math.max(worst, difference);
  }
  return worst;
}

/** Which elements of a bias its gradient determines, where it has keys that are not rotated. */
function determinedOf(name, { length }, config) {
  const stretch = config.hidden_size / config.num_attention_heads;
  // A query, a key and a value follow each other.
  if (name.endsWith("c_attn.bias")) return (_, i) => Math.floor(i / (length / 3)) !== 1;
  if (name.endsWith("query_key_value.bias")) return (_, i) => Math.floor(i / stretch) % 3 !== 1;
  if (!(name.endsWith("k_proj.bias") && config.partial_rotary_factor < 1)) return undefined;
  return (_, i) => i % stretch < stretch * config.partial_rotary_factor;
}

/**
 * The weights after the ten steps: norms and biases in full, of the others their sizes. A bias of keys adds
 * the same to all scores of a query, unless they are rotated: its gradient is rounding, and Adam makes steps
 * of that.
 */
async function checkWeights(model, before, oracle, summaries) {
  const read = ({ header, data }, name) =>
    new Float32Array(data.slice(...header[name].data_offsets).buffer);
  const after = openFile((await model.save({ dtype: "f32" }))["model.safetensors"]);
  for (const [name, { l2, moved }] of Object.entries(summaries)) {
    const [was, is] = [read(before, name), read(after, name)];
    const determined = determinedOf(name, is, model.config);
    if (determined) {
      const got = is.filter(determined);
      const difference = furthest(got, oracle[`final.${name}`].filter(determined));
      ok(difference <= 1e-4, `${name} differs by ${difference}`);
      continue;
    }
    close(norm(is) / l2, 1, 1e-4, `length of ${name}`);
    close(norm(is.map((x, i) => x - was[i])) / moved, 1, 1e-2, `distance moved by ${name}`);
    const final = oracle[`final.${name}`];
    if (final) ok(furthest(is, final) <= 1e-4, `${name} differs by ${furthest(is, final)}`);
  }
}

async function training(host, name) {
  const oracle = await oracleOf(name);
  const losses = JSON.parse(new TextDecoder().decode(await readReference(`${name}/losses.json`)));
  const model = await load(host, name);
  const before = openFile((await model.save({ dtype: "f32" }))["model.safetensors"]);
  const { tokens, targets, documents } = oracle;
  const options = trainerOptions(losses.options, tokens.length);
  const trainer = await host.tinyloom.Trainer.create(model, options);
  let [gradient, loss] = [0, 0];
  for (const expected of losses.steps) {
    const m = await trainer.step({ tokens, targets, documents });
    close(m.loss, expected.loss, 1e-4, `loss of step ${expected.step}`);
    close(m.gradNorm / expected.grad_norm, 1, 1e-3, `gradient norm of step ${expected.step}`);
    loss = Math.max(loss, Math.abs(m.loss - expected.loss));
    if (m.step === 1) gradient = await checkGradients(trainer, oracle);
  }
  await checkWeights(model, before, oracle, losses.final_weights);
  model.free();
  const digits = (x) => x.toExponential(1);
  return `gradients within ${digits(gradient)} in L2, ten losses within ${digits(loss)}`;
}

/** Ten steps of a model by an optimizer, beside those of its reference. */
async function optimizer(host, name) {
  const file = await readReference(`optimizers/${name}.json`);
  const { model: of, options, steps } = JSON.parse(new TextDecoder().decode(file));
  const { tokens, targets, documents } = await oracleOf(of);
  const model = await load(host, of);
  const trainer = await host.tinyloom.Trainer.create(model, trainerOptions(options, tokens.length));
  equal(trainer.options.optimizer, options.optimizer, "the optimizer in force");
  let worst = 0;
  for (const expected of steps) {
    const m = await trainer.step({ tokens, targets, documents });
    close(m.loss, expected.loss, 1e-4, `loss of step ${expected.step}`);
    close(m.gradNorm / expected.grad_norm, 1, 1e-3, `gradient norm of step ${expected.step}`);
    worst = Math.max(worst, Math.abs(m.loss - expected.loss));
  }
  model.free();
  return `ten losses within ${worst.toExponential(1)}`;
}

/**
 * Gradients and ten steps under dropout, beside PyTorch's with the same masks. The rates are an option, but the
 * config's for GPT-NeoX.
 */
async function dropout(host, name) {
  const { tinyloom, runtime } = host;
  const file = await readReference(`dropout/${name}.json`);
  const { config, rates, options, steps } = JSON.parse(new TextDecoder().decode(file));
  const { tokens, targets, documents } = await oracleOf(name);
  const files = await filesOf(name);
  const asked = trainerOptions(options, tokens.length);
  if (name === "gpt-neox") {
    const own = JSON.parse(new TextDecoder().decode(files["config.json"]));
    files["config.json"] = new TextEncoder().encode(JSON.stringify({ ...own, ...config }));
  } else {
    const [rate, ...others] = new Set(Object.values(rates));
    asked.dropout = others.length === 0 ? rate : rates;
  }
  const model = await tinyloom.Model.fromPretrained(runtime, files);
  const trainer = await tinyloom.Trainer.create(model, asked);
  equal(trainer.options.dropout, rates, "the rates in force");
  let [gradient, loss] = [0, 0];
  for (const expected of steps) {
    const m = await trainer.step({ tokens, targets, documents });
    close(m.loss, expected.loss, 1e-4, `loss of step ${expected.step}`);
    close(m.gradNorm / expected.grad_norm, 1, 1e-3, `gradient norm of step ${expected.step}`);
    loss = Math.max(loss, Math.abs(m.loss - expected.loss));
    const wanted = m.step === 1 && (await tensorsOf(`dropout/${name}.safetensors`));
    if (wanted) gradient = await checkGradients(trainer, wanted);
  }
  model.free();
  const digits = (x) => x.toExponential(1);
  return `gradients within ${digits(gradient)} in L2, ten losses within ${digits(loss)}`;
}

/** Where this body's cases run: see hosts.mjs. */
export const place = {
  whole: ["node"],
  why: "PyTorch's numbers come from the kernels, which the lanes run on each compiler and adapter; files are the host's",
  core: 12,
  smoke: [
    "lion: ten steps",
    "llama3: logits, and saved again",
    "llama3: gradients and ten steps",
    "llama3: greedy text",
    "qwen3: logits, and saved again",
    "qwen3: gradients and ten steps",
    "qwen3: greedy text",
    "gpt2: gradients and ten steps",
    "gpt2: dropout, gradients and ten steps",
    "gemma3: gradients and ten steps",
    "gpt2-bf16: logits, and saved again",
    "gemma2: hidden states and attention",
    "a fresh model is saved with the same bytes everywhere",
  ],
  limits: { node: "default" },
};

export const cases = {
  ...Object.fromEntries(
    DROPPED.map((name) => [
      `${name}: dropout, gradients and ten steps`,
      (host) => dropout(host, name),
    ]),
  ),

  ...Object.fromEntries(
    OPTIMIZERS.map((name) => [`${name}: ten steps`, (host) => optimizer(host, name)]),
  ),

  ...Object.fromEntries(
    MODELS.map((name) => [`${name}: logits, and saved again`, (host) => inference(host, name)]),
  ),
  ...Object.fromEntries(
    TRAINED.map((name) => [`${name}: gradients and ten steps`, (host) => training(host, name)]),
  ),

  ...Object.fromEntries(
    MODELS.map((name) => [`${name}: hidden states and attention`, (host) => looks(host, name)]),
  ),

  ...Object.fromEntries(
    MODELS.map((name) => [`${name}: greedy text`, (host) => greedyText(host, name)]),
  ),

  async "a fresh model is saved with the same bytes everywhere"(host) {
    const create = () => host.tinyloom.Model.create(host.runtime, FRESH, { seed: 2024 });
    const model = await create();
    const tokens = Uint32Array.from({ length: 20 }, (_, i) => (i * 31 + 7) % FRESH.vocab_size);
    await wayBack(host, "fresh", model, tokens);
    const again = await create();
    sameBytes((await again.save())["model.safetensors"], (await model.save())["model.safetensors"]);
    model.free();
    again.free();
  },
};
