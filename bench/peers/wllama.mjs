// wllama for the suite `serving`: llama.cpp in WebAssembly with its WebGPU backend, in a worker.
import { Wllama } from "@wllama/wllama";
import { textOf } from "../serving/prompts.mjs";

const here = import.meta.url.slice(0, import.meta.url.lastIndexOf("/"));
/** Room for every prompt; one text at a time; each prompt in one batch. */
const CONTEXT = { n_ctx: 1024, n_batch: 1024, n_parallel: 1, flash_attn: true, warmup: false };
const GREEDY = {
  temperature: 0,
  top_k: 1,
  samplers: ["top_k"],
  cache_prompt: false,
  ignore_eos: true,
};

/** A logger that keeps the first lines about the backend. */
function listening(kept) {
  const keep = (...parts) => {
    const line = parts.join(" ");
    if (/webgpu|offloaded|flash/i.test(line) && kept.length < 12) kept.push(line.trim());
  };
  return { debug: keep, log: keep, warn: keep, error: keep };
}

export async function load({ model, format }) {
  const lines = [];
  const wllama = new Wllama({ default: `${here}/wllama.wasm` }, { logger: listening(lines) });
  const response = await fetch(`/weights/${model}/${format}.gguf`);
  await wllama.loadModel([await response.blob()], CONTEXT);
  const ask = (ids, count, more) =>
    wllama.createCompletion({ ...GREEDY, prompt: textOf(ids), max_tokens: count, ...more });
  return {
    about: {
      version: Wllama.getLibllamaVersion(),
      webgpu: wllama.isSupportWebGPU(),
      threads: wllama.getNumThreads(),
      lines,
    },
    async generate(ids, count, onToken) {
      for await (const { choices } of await ask(ids, count, { stream: true }))
        if (choices[0]?.finish_reason === null) onToken();
    },
    async greedy(ids, count) {
      const { choices, usage } = await ask(ids, count, { logprobs: 2 });
      if (usage.prompt_tokens !== ids.length)
        throw new Error(`the text of ${ids.length} ids became ${usage.prompt_tokens}`);
      const { content } = choices[0].logprobs;
      const gap = ({ top_logprobs: [first, second] }) => first.logprob - second.logprob;
      return { tokens: content.map(({ id }) => id), gaps: content.map(gap) };
    },
  };
}
