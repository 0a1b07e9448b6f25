// A tiny checkpoint with a tokenizer and a chat template, as a folder of Hugging Face's has them, and chats for it.
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "../../scripts/lib.mjs";
import { concat, makeFile } from "../api/bodies/kit.mjs";
import { mulberry32 } from "../random.mjs";

const WIDTH = 64;
const CONFIG = {
  model_type: "llama",
  vocab_size: 48,
  hidden_size: WIDTH,
  intermediate_size: 2 * WIDTH,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  max_position_embeddings: 64,
  rms_norm_eps: 1e-6,
  tie_word_embeddings: true,
};

/** Shapes by name. Matrices are as large as their inputs make them; norms are of ones. */
function shapes() {
  const layer = (at) => {
    const name = (part) => `model.layers.${at}.${part}.weight`;
    return {
      [name("self_attn.q_proj")]: [WIDTH, WIDTH],
      [name("self_attn.k_proj")]: [WIDTH / 2, WIDTH],
      [name("self_attn.v_proj")]: [WIDTH / 2, WIDTH],
      [name("self_attn.o_proj")]: [WIDTH, WIDTH],
      [name("mlp.gate_proj")]: [2 * WIDTH, WIDTH],
      [name("mlp.up_proj")]: [2 * WIDTH, WIDTH],
      [name("mlp.down_proj")]: [WIDTH, 2 * WIDTH],
      [name("input_layernorm")]: [WIDTH],
      [name("post_attention_layernorm")]: [WIDTH],
    };
  };
  const embedding = { "model.embed_tokens.weight": [CONFIG.vocab_size, WIDTH] };
  return { ...embedding, ...layer(0), ...layer(1), "model.norm.weight": [WIDTH] };
}

function weights(seed) {
  const next = mulberry32(seed);
  const normal = () => Math.sqrt(-2 * Math.log(1 - next())) * Math.cos(2 * Math.PI * next());
  const header = {};
  const pieces = [];
  let at = 0;
  for (const [name, shape] of Object.entries(shapes())) {
    const count = shape.reduce((product, one) => product * one);
    const values = Float32Array.from({ length: count }, () =>
      shape.length === 1 ? 1 : 0.12 * normal(),
    );
    header[name] = { dtype: "F32", shape, data_offsets: [at, at + 4 * count] };
    at += 4 * count;
    pieces.push(new Uint8Array(values.buffer));
  }
  return makeFile(header, concat(pieces));
}

/** The files of the folder. */
export function checkpoint() {
  const tokenizer = (name) => readFileSync(join(root, "tests", "files", "hub-tokenizer", name));
  return {
    "config.json": Buffer.from(JSON.stringify(CONFIG)),
    "model.safetensors": Buffer.from(weights(7)),
    "tokenizer.json": tokenizer("tokenizer.json"),
    "tokenizer_config.json": tokenizer("tokenizer_config.json"),
  };
}

export const blobs = (files) =>
  Object.fromEntries(Object.entries(files).map(([name, bytes]) => [name, new Blob([bytes])]));

/** Writes them into a folder, and gives the paths. */
export function written(folder, files) {
  mkdirSync(folder, { recursive: true });
  return Object.entries(files).map(([name, bytes]) => {
    writeFileSync(join(folder, name), bytes);
    return join(folder, name);
  });
}

const SUBJECTS = ["boat", "town", "lamp", "dog", "stone", "hat"];
const QUESTIONS = ["is the _ old?", "where is the _?", "who has the _?", "is the _ in the house?"];

/** Chats of two turns each. */
export const CHATS = QUESTIONS.flatMap((question, kind) =>
  SUBJECTS.map((subject) => [
    { role: "user", content: question.replace("_", subject) },
    {
      role: "assistant",
      content: ["yes, the _ is", "in the sea", "the _", "no"][kind].replace("_", subject),
    },
  ]),
);

/** The files of a zip. */
export { unzipSync as unzip } from "fflate";
