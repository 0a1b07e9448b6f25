// A Node process with Dawn: the loom's forward pass beside the package's, on the same weights. Prints what differs.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Model, Runtime } from "tinyloom";
import { create } from "webgpu";
import { root } from "../../scripts/lib.mjs";
import { pageModule } from "./page-module.mjs";

const { halfFile } = await pageModule("src/loom/half-file");
const { numbersOf, narrowed, sizeOf, weavable, weightsOf, widened } =
  await pageModule("src/loom/weights");
const { guessOf, headAt, Pass } = await pageModule("src/loom/pass");
const { answer } = await pageModule("src/loom/ask");
const { layersFrom, weaveOf } = await pageModule("src/tune/weave");
const { readRecording } = await pageModule("src/loom/recorded");

const runtime = await Runtime.create({ gpu: create([]) });

/** The largest difference of a pass from rows of logits. */
function furthest(weights, tokens, logits, off) {
  const pass = new Pass(weights, tokens.length, off);
  let most = 0;
  for (const [at, token] of tokens.entries()) {
    pass.read(token);
    const own = pass.logits();
    for (let i = 0; i < own.length; i++) {
      const far = Math.abs(own[i] - logits[at * own.length + i]);
      if (!(far <= most)) most = far;
    }
  }
  return most;
}

/** Models of several shapes: shared keys, a head of its own, odd widths, other angles. */
const CONFIGS = [
  {
    hidden_size: 64,
    intermediate_size: 192,
    num_hidden_layers: 2,
    num_attention_heads: 4,
    num_key_value_heads: 2,
    tie_word_embeddings: true,
  },
  {
    hidden_size: 48,
    intermediate_size: 100,
    num_hidden_layers: 3,
    num_attention_heads: 8,
    num_key_value_heads: 2,
    head_dim: 12,
    tie_word_embeddings: false,
    rope_theta: 500,
    rms_norm_eps: 1e-5,
  },
  {
    hidden_size: 32,
    intermediate_size: 64,
    num_hidden_layers: 1,
    num_attention_heads: 1,
    tie_word_embeddings: true,
  },
];
const tokens = Uint32Array.from(Buffer.from("planet>tenalp\nThe loom weaves."));

async function shapes() {
  const found = [];
  for (const [seed, one] of CONFIGS.entries()) {
    const config = {
      vocab_size: 256,
      max_position_embeddings: 64,
      initializer_range: 0.15,
      ...one,
    };
    const model = await Model.create(runtime, config, { seed });
    const files = await model.save();
    const shape = weavable(config);
    const numbers = numbersOf(shape, files["model.safetensors"], new Float32Array(sizeOf(shape)));
    const file = await halfFile(model);
    const halves = numbersOf(shape, file, new Uint16Array(sizeOf(shape)));
    const rounded = narrowed(numbers);
    const apart = halves.filter((half, at) => half !== rounded[at]).length;
    const logits = furthest(weightsOf(shape, numbers), tokens, await model.logits(tokens));
    const off = new Set([0, headAt(shape.heads, shape.layers - 1, shape.heads - 1)]);
    const interventions = [...off].map((head) => ({
      at: "head",
      layer: Math.floor(head / shape.heads),
      head: head % shape.heads,
      scale: 0,
    }));
    const cut = await model.logits(tokens, { interventions });
    const heads = furthest(weightsOf(shape, numbers), tokens, cut, off);
    const both = furthest(weightsOf(shape, numbers), tokens, cut);
    const weights = weightsOf(shape, numbers);
    found.push({
      apart,
      logits,
      heads,
      both,
      ...(await inside(model, weights)),
      ...(await real(model, weights)),
    });
    model.free();
  }
  return found;
}

/** How far what the stage draws is from the package's own capture: shares of all heads, states, and the lens. */
async function inside(model, weights) {
  const { layers, heads, width } = weights.shape;
  const pass = new Pass(weights, tokens.length);
  for (const token of tokens) pass.read(token);
  const { attention, residual } = await model.capture(tokens, { attention: true, residual: true });
  const lens = await model.lens(tokens, { top: 1 });
  const count = tokens.length;
  let [shares, states, said] = [0, 0, 0];
  for (let at = 0; at < count; at++) {
    for (let layer = 0; layer <= layers; layer++) {
      for (const [i, value] of pass.state(layer, at).entries()) {
        states = Math.max(states, Math.abs(value - residual[layer][at * width + i]));
      }
      const { token } = guessOf(pass.logits(at, layer));
      if (lens.find((one) => one.layer === layer).top.ids[at] !== token) said++;
      if (layer === layers) continue;
      for (let head = 0; head < heads; head++) {
        for (const [from, share] of pass.shares(layer, head, at).entries()) {
          const own = attention[layer][(head * count + at) * count + from];
          shares = Math.max(shares, Math.abs(share - own));
        }
      }
    }
  }
  return { shares, states, said };
}

/** How far what the fine-tune panel weaves by the package is from the loom's own pass, on the last letters of the text. */
async function real(model, weights) {
  const { layers, heads } = weights.shape;
  const pass = new Pass(weights, tokens.length);
  for (const token of tokens) pass.read(token);
  const codec = { name: async (token) => String.fromCharCode(token) };
  const read = { tokens: [...tokens], given: tokens.length - 5 };
  const woven = await weaveOf(model, codec, read, layersFrom("all", layers), {});
  const begin = tokens.length - woven.columns;
  let far = woven.shape.layers === layers && woven.shape.heads === heads ? 0 : 1;
  const differ = (a, b) => {
    far = Math.max(far, Math.abs(a - b));
  };
  for (let at = 0; at < woven.columns; at++) {
    const here = begin + at;
    const guess = guessOf(pass.logits(here));
    differ(woven.guesses[at].share, guess.share);
    if (woven.guesses[at].token !== guess.token) far = 1;
    if (woven.signs.get(tokens[here]).trim() === "") far = 1;
    for (let layer = 0; layer < layers; layer++) {
      if (woven.lens[layer][at].token !== guessOf(pass.logits(here, layer)).token) far = 1;
      for (let head = 0; head < heads; head++) {
        const shares = pass.shares(layer, head, here);
        for (let from = 0; from <= at; from++) {
          differ(woven.shares[layer][head][at][from], shares[begin + from]);
        }
      }
    }
  }
  return { columns: woven.columns, given: woven.given, far };
}

/** A safetensors file of weights. */
function fileOf({ shape, ...weights }) {
  const named = [["model.embed_tokens.weight", weights.embedding, [shape.words, shape.width]]];
  const { width, inner } = shape;
  const [all, shared] = [shape.heads * shape.headWidth, shape.kvHeads * shape.headWidth];
  for (const [at, layer] of weights.layers.entries()) {
    for (const [name, key, size] of [
      ["input_layernorm", "attentionNorm", [width]],
      ["self_attn.q_proj", "query", [all, width]],
      ["self_attn.k_proj", "key", [shared, width]],
      ["self_attn.v_proj", "value", [shared, width]],
      ["self_attn.o_proj", "output", [width, all]],
      ["post_attention_layernorm", "innerNorm", [width]],
      ["mlp.gate_proj", "gate", [inner, width]],
      ["mlp.up_proj", "up", [inner, width]],
      ["mlp.down_proj", "down", [width, inner]],
    ]) {
      named.push([`model.layers.${at}.${name}.weight`, layer[key], size]);
    }
  }
  named.push(["model.norm.weight", weights.norm, [width]]);
  if (!shape.tied) named.push(["lm_head.weight", weights.head, [shape.words, width]]);
  const header = {};
  let end = 0;
  for (const [name, values, shapeOf] of named) {
    const from = end;
    end += values.byteLength;
    header[name] = { dtype: "F32", shape: shapeOf, data_offsets: [from, end] };
  }
  const json = JSON.stringify(header);
  const text = Buffer.from(json.padEnd(Math.ceil(json.length / 8) * 8));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  const bodies = named.map(([, values]) =>
    Buffer.from(values.buffer, values.byteOffset, values.byteLength),
  );
  return new Uint8Array(Buffer.concat([length, text, ...bodies]));
}

/** The recording's questions, put to the pass and to the package by its last weights. */
async function recording() {
  const path = join(root, "www/src/loom/recorded.bin");
  let track;
  let last;
  const begin = (one) => {
    track = one;
  };
  const more = (numbers) => {
    last = numbers;
  };
  await readRecording(new Blob([readFileSync(path)]).stream(), begin, more);
  const { weights } = track.snapshots.at(-1);
  const { presets } = await pageModule("src/presets");
  const model = await Model.fromPretrained(runtime, {
    "config.json": new Blob([JSON.stringify({ model_type: "llama", ...presets.thimble.config })]),
    "model.safetensors": fileOf(weights),
  });
  let [logits, differ, said, halves] = [0, 0, 0, 0];
  const narrow = weightsOf(weights.shape, widened(narrowed(last)));
  const wide = weightsOf(weights.shape, last);
  const marks = track.snapshots.at(-1).marks.get("").right;
  for (const [index, question] of track.questions.entries()) {
    const { prompt, wanted } = question;
    const all = Uint32Array.from([...prompt, ...wanted.subarray(0, -1)]);
    const rows = await model.logits(all);
    logits = Math.max(logits, furthest(weights, all, rows));
    const likeliest = (row) => {
      const part = rows.subarray(256 * row, 256 * (row + 1));
      return part.indexOf(Math.max(...part));
    };
    const right = [...wanted].every((token, at) => likeliest(prompt.length - 1 + at) === token);
    const own = answer(weights, question);
    if (own.right !== right) differ++;
    if (own.right !== marks[index]) said++;
    if (answer(narrow, question).right !== answer(wide, question).right) halves++;
  }
  const bytes = readFileSync(path).length;
  const right = track.snapshots.map((one) => one.marks.get("").right.filter(Boolean).length);
  return { questions: track.questions.length, logits, differ, said, halves, bytes, right };
}

console.log(JSON.stringify({ shapes: await shapes(), recording: await recording() }));
process.exit(0); // Dawn's threads would keep the process alive
