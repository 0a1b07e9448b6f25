// Writes a checkpoint of random weights in BF16 with the names and sizes of a real model, for measurements where no
// checkpoint can be fetched: node scripts/random-checkpoint.mjs MODEL FOLDER
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { open } from "node:fs/promises";
import { join } from "node:path";
import { isMain, main, root } from "./lib.mjs";

const configs = JSON.parse(readFileSync(join(root, "bench", "configs.json"), "utf8"));
const PUBLISHED = ["SmolLM2-135M", "Qwen3-0.6B", "Gemma-3-270M"];

/** Configs as their publishers have them. */
export const MODELS = Object.fromEntries(PUBLISHED.map((name) => [name, configs[name].config]));

/** Model types that norm each head's queries and keys, and those with norms behind their blocks too. */
const HEAD_NORMS = ["qwen3", "gemma3_text"];
const NORMS_BEHIND = ["gemma3_text"];

/** Numbers that are written at a time. */
const PIECE = 1 << 20;

/** The tensors of a config, as transformers names and lays them out. */
export function tensorsOf(config) {
  const { hidden_size: hidden, intermediate_size: feed, num_attention_heads: heads } = config;
  const head = config.head_dim ?? hidden / heads;
  const [query, keys] = [heads * head, (config.num_key_value_heads ?? heads) * head];
  const tensors = [["model.embed_tokens.weight", [config.vocab_size, hidden]]];
  for (let layer = 0; layer < config.num_hidden_layers; layer++) {
    const add = (name, ...shape) => tensors.push([`model.layers.${layer}.${name}.weight`, shape]);
    add("input_layernorm", hidden);
    add("self_attn.q_proj", query, hidden);
    add("self_attn.k_proj", keys, hidden);
    add("self_attn.v_proj", keys, hidden);
    if (HEAD_NORMS.includes(config.model_type)) {
      add("self_attn.q_norm", head);
      add("self_attn.k_norm", head);
    }
    add("self_attn.o_proj", hidden, query);
    add("post_attention_layernorm", hidden);
    if (NORMS_BEHIND.includes(config.model_type)) {
      add("pre_feedforward_layernorm", hidden);
      add("post_feedforward_layernorm", hidden);
    }
    add("mlp.gate_proj", feed, hidden);
    add("mlp.up_proj", feed, hidden);
    add("mlp.down_proj", hidden, feed);
  }
  tensors.push(["model.norm.weight", [hidden]]);
  if (!config.tie_word_embeddings) tensors.push(["lm_head.weight", [config.vocab_size, hidden]]);
  return tensors;
}

/** BF16 words of numbers spread evenly within ±1/16, drawn by xorshift; norms are one. */
function* wordsOf(count, norm, seed) {
  let state = seed;
  for (let at = 0; at < count; at += PIECE) {
    const words = new Uint16Array(Math.min(PIECE, count - at)).fill(0x3f80);
    if (!norm) {
      const numbers = new Float32Array(1);
      const bits = new Uint32Array(numbers.buffer);
      for (let i = 0; i < words.length; i++) {
        state ^= state << 13;
        state ^= state >>> 17;
        state ^= state << 5;
        numbers[0] = state / 2 ** 35;
        words[i] = bits[0] >>> 16;
      }
    }
    yield words;
  }
}

/** Writes config.json and model.safetensors into a folder, a piece at a time. */
export async function writeCheckpoint(folder, config) {
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "config.json"), `${JSON.stringify(config, null, 2)}\n`);
  const header = { __metadata__: { format: "pt" } };
  let end = 0;
  const tensors = tensorsOf(config);
  for (const [name, shape] of tensors) {
    const begin = end;
    end += 2 * shape.reduce((product, n) => product * n, 1);
    header[name] = { dtype: "BF16", shape, data_offsets: [begin, end] };
  }
  const json = Buffer.from(JSON.stringify(header));
  const padded = Buffer.alloc(Math.ceil(json.length / 8) * 8, " ");
  json.copy(padded);
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(padded.length));
  const file = await open(join(folder, "model.safetensors"), "w");
  try {
    await file.write(Buffer.concat([length, padded]));
    for (const [index, [, shape]] of tensors.entries()) {
      const count = shape.reduce((product, n) => product * n, 1);
      for (const words of wordsOf(count, shape.length === 1, index + 1)) {
        await file.write(new Uint8Array(words.buffer));
      }
    }
  } finally {
    await file.close();
  }
}

if (isMain(import.meta.url)) {
  await main(async () => {
    const [name, folder] = process.argv.slice(2);
    if (!(name in MODELS) || !folder) {
      throw new Error(`usage: random-checkpoint.mjs ${Object.keys(MODELS).join("|")} FOLDER`);
    }
    await writeCheckpoint(folder, MODELS[name]);
  });
}
