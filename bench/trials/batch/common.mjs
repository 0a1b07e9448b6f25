import { create, globals } from "webgpu";
import { readFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
Object.assign(globalThis, globals);
export const here = dirname(fileURLToPath(import.meta.url));
export const tiny = !!process.env.TINY;
export const gpu = create(["disable-dawn-features=timestamp_quantization"]);
export const kernels = () => JSON.parse(readFileSync(resolve(here, tiny ? "kernels-tiny.json" : "kernels.json"), "utf8"));
export async function open(pkg) {
  const tl = await import(pathToFileURL(`${pkg}/index.js`));
  const runtime = await tl.Runtime.create({ gpu, recover: false, limits: "adapter" });
  const config = { architectures: ["LlamaForCausalLM"], model_type: "llama", hidden_act: "silu", hidden_size: tiny ? 64 : 768, intermediate_size: tiny ? 96 : 2048, num_hidden_layers: tiny ? 2 : 12, num_attention_heads: tiny ? 2 : 12, num_key_value_heads: tiny ? 1 : 4, vocab_size: tiny ? 128 : 8192, max_position_embeddings: 4096, rms_norm_eps: 1e-5, rope_theta: 10000, tie_word_embeddings: true };
  const model = await tl.Model.create(runtime, config, { seed: 1 });
  let x = 12345; const random = () => (x = (Math.imul(x, 1103515245) + 12345) & 0x7fffffff);
  const prompts = (count, length = tiny ? 12 : 128) => Array.from({ length: count }, (_, seed) => ({ prompt: Uint32Array.from({ length }, () => (random() >> 8) % config.vocab_size), seed }));
  return { tl, runtime, model, prompts, adapter: runtime.capabilities.adapter };
}
export const median = (list) => list.sort((a, b) => a - b)[list.length >> 1];
export const TOKENS = tiny ? 8 : 256;
