// What the tasks of bench/align share.

/** Numbers that follow from a seed, at least 0 and below 1 (mulberry32). */
export function random(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let bits = Math.imul(state ^ (state >>> 15), state | 1);
    bits ^= bits + Math.imul(bits ^ (bits >>> 7), bits | 61);
    return ((bits ^ (bits >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** The list in a random order (Fisher and Yates). */
export function shuffled(list, draw) {
  const all = [...list];
  for (let i = all.length - 1; i > 0; i--) {
    const j = Math.floor(draw() * (i + 1));
    [all[i], all[j]] = [all[j], all[i]];
  }
  return all;
}

/** A target that the loss leaves out. */
const IGNORED = 0xffffffff;

/** A batch of prompts with completions. The model learns the completions alone. */
export function batchOf(texts) {
  const [tokens, targets, documents] = [[], [], []];
  for (const [prompt, completion] of texts) {
    const start = tokens.length;
    const text = [...prompt, ...completion];
    for (const [i, token] of text.entries()) {
      tokens.push(token);
      documents.push(start);
      targets.push(i + 1 < prompt.length ? IGNORED : (text[i + 1] ?? IGNORED));
    }
  }
  return { tokens, targets, documents };
}

/** A text that the model writes for each prompt, without the token that ends it. */
export async function written(model, prompts, { temperature, maxTokens, end, seed, adapter }) {
  const texts = prompts.map(() => []);
  for (let from = 0; from < prompts.length; from += 256) {
    const some = prompts
      .slice(from, from + 256)
      .map((prompt, i) => ({ prompt, seed: seed + from + i }));
    const asked = { temperature, maxTokens, stopTokens: [end], ...(adapter && { adapter }) };
    for await (const { index, token } of model.generateBatch(some, asked)) {
      texts[from + index].push(token);
    }
  }
  return texts;
}

/** Seconds that work takes, beside what it gives. */
export async function timed(work) {
  const began = performance.now();
  const given = await work();
  return [given, (performance.now() - began) / 1e3];
}

export const mean = (list) => list.reduce((sum, x) => sum + x, 0) / list.length;
