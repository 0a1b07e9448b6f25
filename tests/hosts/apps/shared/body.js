// What every host does with the package: creates a model, trains 25 steps, samples 12 tokens and trains a
// tokenizer. The libraries of Hugging Face are not installed.
const TEXT = "the cat sat on the mat, and the dog sat on the log. ".repeat(30);
const CONFIG = {
  vocab_size: 256,
  hidden_size: 32,
  intermediate_size: 64,
  num_hidden_layers: 1,
  num_attention_heads: 2,
  num_key_value_heads: 1,
  tie_word_embeddings: true,
};

export async function work(tinyloom, options = {}) {
  const { Runtime, Model, Trainer, Dataset, ByteTokenizer } = tinyloom;
  const runtime = await Runtime.create(options);
  const tokenizer = new ByteTokenizer();
  const model = await Model.create(runtime, CONFIG, { seed: 1 });
  const dataset = await Dataset.fromText(TEXT, tokenizer, { sequenceLength: 32, seed: 1 });
  const trainer = await Trainer.create(model, { learningRate: 1e-2, tokensPerStep: 128, seed: 1 });
  const losses = [];
  for await (const { loss } of trainer.run(dataset, { steps: 25 })) losses.push(loss);
  const prompt = tokenizer.encode("the ");
  const sample = [];
  for await (const { token } of model.generate(prompt, { maxTokens: 12, temperature: 0 })) {
    sample.push(token);
  }
  runtime.destroy();
  const { vendor, architecture, description } = runtime.capabilities.adapter;
  return {
    steps: losses.length,
    first: losses[0],
    loss: losses.at(-1),
    sample: tokenizer.decode(sample),
    tokens: sample.length,
    adapter: [vendor, architecture, description].filter(Boolean).join(" "),
    text: await text(tinyloom),
    file: wasmFile(),
  };
}

/** What a tokenizer trained here gives back, saved and loaded, and what another of Hugging Face's says. */
async function text({ BpeTokenizer, Tokenizer }) {
  const trained = await BpeTokenizer.train(TEXT, { vocabSize: 280 });
  const files = await trained.save();
  const loaded = await Tokenizer.fromPretrained(files);
  const tokens = await loaded.encode(TEXT);
  const same = (await loaded.decode(tokens)) === TEXT && tokens.length < TEXT.length / 2;
  // Only tokenizers like those that are trained here need no library.
  const json = JSON.parse(new TextDecoder().decode(files["tokenizer.json"]));
  const other = new TextEncoder().encode(
    JSON.stringify({ ...json, normalizer: { type: "Lowercase" } }),
  );
  const library = await Tokenizer.fromPretrained({ ...files, "tokenizer.json": other }).then(
    () => "loaded",
    ({ code }) => code,
  );
  return `${same ? "same text" : "another text"}, ${library}`;
}

/** Whether the wasm file came, as far as this page or worker can tell; a page of HTML is smaller. */
function wasmFile() {
  const files = performance.getEntriesByType("resource").filter(({ name }) => /\.wasm/.test(name));
  return files.some(({ decodedBodySize }) => decodedBodySize > 100_000);
}

/** Leaves a page's outcome where the test looks for it. */
export function show(working) {
  const leave = (outcome) => {
    document.documentElement.dataset.host = JSON.stringify(outcome);
  };
  working.then(leave, ({ code, message }) => leave({ error: `${code}: ${message}` }));
}
