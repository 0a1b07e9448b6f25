// GGUF files as sources of models: in what form they are given, and that codes are kept as they are.

import { equal, ok, refuses, sameBytes } from "../../api/bodies/assert.mjs";
import { makeFile } from "../../api/bodies/kit.mjs";
import { below, mulberry32 } from "../../random.mjs";
import { checkpointOf, readGguf } from "../gguf/read.mjs";
import { GgufBytes } from "../gguf/write.mjs";

const [HIDDEN, FEED, VOCABULARY, LAYERS] = [64, 128, 96, 2];
const KEYS = {
  "general.architecture": "llama",
  "general.name": "By hand",
  "llama.context_length": 64,
  "llama.embedding_length": HIDDEN,
  "llama.block_count": LAYERS,
  "llama.feed_forward_length": FEED,
  "llama.attention.head_count": 2,
  "llama.attention.key_length": 32,
  "llama.attention.layer_norm_rms_epsilon": { f32: 1e-5 },
};
const TOKENS = [3, 1, 4, 1, 5, 9, 2, 6, 53, 58, 9, 79];

/** Blocks whose codes do not reach the extreme one, by which packing finds a scale. */
const BLOCKS = {
  q4_0: { id: 2, bytes: 18, code: (pick) => (pick(7) + 5) | ((pick(7) + 5) << 4) },
  q8_0: { id: 8, bytes: 34, code: (pick) => (pick(101) - 50) & 255 },
};

function matrix(name, rows, columns, kind, pick) {
  const { id, bytes, code } = BLOCKS[kind];
  const count = (rows * columns) / 32;
  const data = new Uint8Array(count * bytes);
  const view = new DataView(data.buffer);
  for (let block = 0; block < count; block++) {
    // A half of 2⁻⁴ to 2⁻⁷ of q4_0, and of a sixteenth of that.
    const exponent = (kind === "q4_0" ? 11 : 7) - pick(3);
    view.setUint16(block * bytes, (exponent << 10) | pick(1024) | (pick(2) << 15), true);
    for (let at = 2; at < bytes; at++) data[block * bytes + at] = code(pick);
  }
  return { name, shape: [rows, columns], type: id, data };
}

/** A Llama whose matrices are all of one type. */
function llama(kind) {
  const pick = below(mulberry32(8));
  const own = (name, rows, columns) => matrix(name, rows, columns, kind, pick);
  const norm = (name) => ({ name, shape: [HIDDEN], type: 0, values: Array(HIDDEN).fill(1) });
  const tensors = [own("token_embd.weight", VOCABULARY, HIDDEN)];
  for (let layer = 0; layer < LAYERS; layer++) {
    const at = `blk.${layer}.`;
    tensors.push(norm(`${at}attn_norm.weight`), norm(`${at}ffn_norm.weight`));
    for (const name of ["attn_q", "attn_k", "attn_v", "attn_output"])
      tensors.push(own(`${at}${name}.weight`, HIDDEN, HIDDEN));
    tensors.push(own(`${at}ffn_gate.weight`, FEED, HIDDEN));
    tensors.push(own(`${at}ffn_up.weight`, FEED, HIDDEN));
    tensors.push(own(`${at}ffn_down.weight`, HIDDEN, FEED));
  }
  return new GgufBytes().file(KEYS, [...tensors, norm("output_norm.weight")]);
}

/** The same weights in safetensors, dequantised apart from the code that is tested. */
function dequantised(bytes) {
  const [header, parts] = [{}, []];
  let at = 0;
  for (const [name, { shape, values }] of Object.entries(checkpointOf(readGguf(bytes)))) {
    const end = at + values.byteLength;
    header[name] = { dtype: "F32", shape, data_offsets: [at, end] };
    parts.push(new Uint8Array(values.buffer));
    at = end;
  }
  const data = new Uint8Array(at);
  for (const [index, part] of parts.entries())
    data.set(part, Object.values(header)[index].data_offsets[0]);
  return makeFile(header, data);
}

const CONFIG = {
  model_type: "llama",
  vocab_size: VOCABULARY,
  hidden_size: HIDDEN,
  intermediate_size: FEED,
  num_hidden_layers: LAYERS,
  num_attention_heads: 2,
  max_position_embeddings: 64,
  rms_norm_eps: 1e-5,
  tie_word_embeddings: true,
};

async function logitsOf({ Model }, runtime, source, options) {
  const model = await Model.fromPretrained(runtime, source, options);
  const logits = await model.logits(TOKENS);
  const { gpuBytes } = model;
  model.free();
  return { logits, gpuBytes };
}

const apart = (a, b) => Math.max(...a.map((one, at) => Math.abs(one - b[at])));

/** Where this body's cases run: see hosts.mjs. */
export const place = {
  whole: ["node"],
  why: "the file is read in TypeScript; codes go to the module as typed arrays",
  smoke: ["a file may be given as bytes, as a Blob, and by its name"],
};

export const cases = {
  async "a file may be given as bytes, as a Blob, and by its name"({ tinyloom, runtime }) {
    const bytes = llama("q8_0");
    const config = new TextEncoder().encode(JSON.stringify(CONFIG));
    const weights = dequantised(bytes);
    const folder = { "config.json": config, "model.safetensors": weights };
    const expected = await logitsOf(tinyloom, runtime, folder);
    for (const source of [
      bytes,
      bytes.slice().buffer,
      new Blob([bytes]),
      new File([bytes], "loom-Q8_0.gguf"),
      { "loom-Q8_0.gguf": bytes },
    ]) {
      const { logits } = await logitsOf(tinyloom, runtime, source);
      sameBytes(logits, expected.logits, "logits");
    }
    await refuses("invalid-checkpoint", ["GGUF", "the given file"], () =>
      tinyloom.Model.fromPretrained(runtime, weights),
    );
  },

  async "codes of a file are kept as they are"({ tinyloom, runtime }) {
    for (const [kind, weights] of [
      ["q4_0", "int4"],
      ["q8_0", "int8"],
      ["q4_0", "int8"],
    ]) {
      const bytes = llama(kind);
      const folder = {
        "config.json": new TextEncoder().encode(JSON.stringify(CONFIG)),
        "model.safetensors": dequantised(bytes),
      };
      const whole = await logitsOf(tinyloom, runtime, folder);
      const own = await logitsOf(tinyloom, runtime, bytes, { weights });
      const packed = await logitsOf(tinyloom, runtime, folder, { weights });
      const size = Math.max(...whole.logits.map(Math.abs));
      const [kept, rounded] = [own, packed].map(({ logits }) => apart(logits, whole.logits) / size);
      ok(kept < 1e-5, `${kind} in ${weights}: ${kept} apart`);
      ok(
        rounded > 10 * kept,
        `${kind} packed anew in ${weights}: ${rounded} apart, and ${kept} kept`,
      );
      equal(own.gpuBytes, packed.gpuBytes, "bytes on the GPU");
    }
  },

  async "a model of a file is saved with its name and its ends"({ tinyloom, runtime }) {
    const keys = { ...KEYS, "tokenizer.ggml.eos_token_id": 7, "tokenizer.ggml.eot_token_id": 8 };
    const embedding = { name: "token_embd.weight", shape: [VOCABULARY, HIDDEN], type: 0 };
    const bytes = new GgufBytes().file(keys, [embedding]);
    await refuses("invalid-checkpoint", ["missing", "model.layers.0.input_layernorm.weight"], () =>
      tinyloom.Model.fromPretrained(runtime, bytes),
    );
    const file = llama("q4_0");
    const model = await tinyloom.Model.fromPretrained(runtime, file);
    const saved = await model.save({ format: "gguf", type: "q4_0", tokenizer: null });
    equal(readGguf(saved["model.gguf"]).metadata["general.name"], "By hand");
    equal(model.config._name_or_path, "By hand");
    model.free();
  },

  async "a packed model of a file is merged from the file"({ tinyloom, runtime }) {
    const { Adapter, Model } = tinyloom;
    const bytes = llama("q4_0");
    const base = await Model.fromPretrained(runtime, bytes, { weights: "int4" });
    const adapter = await Adapter.create(base, { rank: 2, seed: 3 });
    const files = await adapter.saveMerged(bytes);
    const merged = await Model.fromPretrained(runtime, files);
    const [a, b] = [await merged.logits(TOKENS), await base.logits(TOKENS, { adapter })];
    const size = Math.max(...a.map(Math.abs));
    ok(apart(a, b) < 1e-5 * size, `${apart(a, b)} apart`); // B is zero
    for (const one of [merged, base]) one.free();
  },
};
