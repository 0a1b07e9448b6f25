// transformers.js for the suite `serving`: ONNX Runtime's WebGPU backend.
import {
  AutoModelForCausalLM,
  env,
  LogitsProcessor,
  LogitsProcessorList,
  Tensor,
} from "@huggingface/transformers";

const here = import.meta.url.slice(0, import.meta.url.lastIndexOf("/"));
const runtime = (type) => `${here}/ort-wasm-simd-threaded.asyncify.${type}`;

Object.assign(env, {
  allowLocalModels: true,
  allowRemoteModels: false,
  localModelPath: "/weights/",
  useBrowserCache: false,
  useWasmCache: false,
});
env.backends.onnx.wasm.wasmPaths = { mjs: runtime("mjs"), wasm: runtime("wasm") };

/** Notes by how much the likeliest logit is above the second. */
class Gaps extends LogitsProcessor {
  found = [];

  _call(_, logits) {
    let [first, second] = [-Infinity, -Infinity];
    for (const logit of logits.data) {
      if (logit > first) [first, second] = [logit, first];
      else if (logit > second) second = logit;
    }
    this.found.push(first - second);
    return logits;
  }
}

/** @param row - `device`: "webgpu", or "wasm" where the adapter lacks f16. */
export async function load({ model: name, format, device = "webgpu" }) {
  const model = await AutoModelForCausalLM.from_pretrained(name, {
    device,
    dtype: format,
    use_external_data_format: true,
  });
  async function draw(ids, count, onToken, more) {
    const tokens = [];
    let begun = false;
    // What comes first is the prompt.
    const put = ([[token]]) => {
      if (begun) {
        tokens.push(Number(token));
        onToken();
      }
      begun = true;
    };
    const shape = [1, ids.length];
    await model.generate({
      inputs: new Tensor("int64", BigInt64Array.from(ids, BigInt), shape),
      attention_mask: new Tensor("int64", new BigInt64Array(ids.length).fill(1n), shape),
      max_new_tokens: count,
      do_sample: false,
      streamer: { put, end() {} },
      ...more,
    });
    return tokens;
  }
  return {
    about: { device, onnxruntime: env.backends.onnx.versions?.web },
    generate: (ids, count, onToken) => draw(ids, count, onToken),
    async greedy(ids, count) {
      const gaps = new Gaps();
      const processors = new LogitsProcessorList();
      processors.push(gaps);
      const tokens = await draw(ids, count, () => {}, { logits_processor: processors });
      return { tokens, gaps: gaps.found };
    },
  };
}
