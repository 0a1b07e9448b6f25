// The GGUF file of a chat model's folder, for guides that load one.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { openFile } from "../api/bodies/kit.mjs";

/** The config in full, as a loaded model has it. */
const whole = (config) => ({
  hidden_act: "silu",
  num_key_value_heads: config.num_attention_heads,
  head_dim: config.hidden_size / config.num_attention_heads,
  rms_norm_eps: 1e-6,
  rope_theta: 10_000,
  rope_parameters: { rope_type: "default", rope_theta: 10_000 },
  attn_logit_softcapping: null,
  ...config,
});

/** Writes the file of a folder with BF16 weights and a tokenizer. */
export async function writeChatGguf(folder, path) {
  const { ggufOf } = await import("../../pkg/dist/gguf/index.js");
  const bytes = (name) => new Uint8Array(readFileSync(join(folder, name)));
  const { header, data } = openFile(bytes("model.safetensors"));
  const entries = Object.entries(header).filter(([name]) => name !== "__metadata__");
  const of32 = entries.map(([name, { shape, data_offsets }]) => {
    const offsets = data_offsets.map((at) => 2 * at);
    return [name, { dtype: "F32", shape, data_offsets: offsets }];
  });
  const json = new TextEncoder().encode(JSON.stringify(Object.fromEntries(of32)));
  const weights = {
    isSaved: () => true,
    saveHeader: () => Uint8Array.from([...new Uint8Array(8), ...json]),
  };
  const names = ["tokenizer.json", "tokenizer_config.json"];
  const tokenizer = Object.fromEntries(names.map((name) => [name, bytes(name)]));
  const config = JSON.stringify(whole(JSON.parse(new TextDecoder().decode(bytes("config.json")))));
  const file = await ggufOf({ type: "q8_0", tokenizer }, config, weights, false);
  const read = async (pieces, take) => {
    for (const [at, { index, begin, end }] of pieces.entries()) {
      const [from] = entries[index][1].data_offsets;
      const halves = new Uint16Array(data.slice(from + begin / 2, from + end / 2).buffer);
      const words = Uint32Array.from(halves, (half) => half << 16);
      await take(new Uint8Array(words.buffer), at);
    }
  };
  const parts = [];
  await file.write(read, (part) => void parts.push(part.slice()));
  writeFileSync(path, Buffer.concat(parts));
}
