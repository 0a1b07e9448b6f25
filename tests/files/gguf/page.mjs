// In a page: what wllama, llama.cpp in WebAssembly, makes of a GGUF file.

/** Logged lines of the last file that was loaded, for the message of a failure. */
let logged = [];
const log = (...words) => void logged.push(words.join(" "));

/**
 * Continues prompts greedily, on the CPU and with the cache in f32.
 *
 * @param base - address of the server.
 * @param file - its path, or the file.
 * @param prompts - texts that llama.cpp makes ids of.
 * @param more - options of wllama's completion that count before those here.
 * @returns per prompt `{ text, tokens, logprobs, read }`: ids, and how many ids the prompt had. With an error, `{ error }`.
 */
export async function continued(base, file, prompts, count, more = {}) {
  logged = [];
  const { Wllama } = await import(`${base}/wllama/index.js`);
  const wasm = `${base}/wllama/wasm/wllama.wasm`;
  const wllama = new Wllama(
    { default: wasm },
    { logger: { debug: log, log, warn: log, error: log }, suppressNativeLog: false },
  );
  try {
    const blob = typeof file === "string" ? await (await fetch(`${base}${file}`)).blob() : file;
    await wllama.loadModel([blob], {
      n_ctx: 256,
      n_gpu_layers: 0,
      n_threads: 1,
      n_parallel: 1,
      flash_attn: false,
      cache_type_k: "f32",
      cache_type_v: "f32",
      warmup: false,
    });
    const answers = [];
    for (const prompt of prompts) answers.push(await answered(wllama, prompt, count, more));
    return { answers };
  } catch (error) {
    return { error: `${error?.stack ?? error}\n${logged.slice(-40).join("\n")}` };
  } finally {
    await wllama.exit();
  }
}

async function answered(wllama, prompt, count, more) {
  const { choices, usage } = await wllama.createCompletion({
    prompt,
    max_tokens: count,
    temperature: 0,
    top_k: 1,
    logprobs: 1,
    ignore_eos: true,
    cache_prompt: false,
    ...more,
  });
  const [{ text, logprobs }] = choices;
  const content = logprobs?.content ?? [];
  return {
    text,
    tokens: content.map(({ id }) => id),
    logprobs: content.map(({ logprob }) => logprob),
    read: usage.prompt_tokens,
  };
}
