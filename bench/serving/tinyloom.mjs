// tinyloom for the suite `serving`.

/** Where a format's weights lie: the packed ones in the files that `model.save` wrote. */
const SOURCES = { f16: "", int8: "q8_0.gguf", int4: "q4_0.gguf" };
/** The likeliest token each time, and no end before the last one. */
const GREEDY = { temperature: 0, stopTokens: [] };

export async function load({ model: name, format, matrices }) {
  const { Model, Runtime } = await import("/pkg/index.js");
  const runtime = await Runtime.create(matrices ? {} : { features: { subgroupMatrix: false } });
  const source = new URL(`/weights/${name}/${SOURCES[format]}`, location.href);
  const model = await Model.fromPretrained(runtime, source, { weights: format });
  return { model, ...subjectOf(runtime, model) };
}

/** What is measured of a model; `options` before those of every call. */
export function subjectOf(runtime, model, options = {}) {
  return {
    about: { features: runtime.capabilities.features, gpuBytes: model.gpuBytes },
    async generate(ids, count, onToken) {
      const call = { ...GREEDY, ...options, maxTokens: count };
      for await (const _ of model.generate(ids, call)) onToken();
    },
    async greedy(ids, count) {
      const [tokens, gaps] = [[], []];
      const call = { ...GREEDY, ...options, maxTokens: count, alternatives: 2 };
      for await (const { token, alternatives } of model.generate(ids, call)) {
        const [first, second] = alternatives;
        tokens.push(token);
        gaps.push(first.logprob - second.logprob);
      }
      return { tokens, gaps };
    },
  };
}
