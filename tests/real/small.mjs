// A Node process with Dawn that makes a small chat model: its GGUF file, the folder for transformers,
// and in `chat` what this process, and not a page, answers.
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { BpeTokenizer, chatPrompt, Dataset, Model, Runtime, Trainer } from "tinyloom";
import { create } from "webgpu";

const [folder] = process.argv.slice(2);
const text = readFileSync(join(import.meta.dirname, "chats.json"), "utf8");
const { questions, chats } = JSON.parse(text);
const MOST = 32;

const chatTemplate =
  "{% for m in messages %}<{{ m.role }}>{{ m.content }}<|end|>{% endfor %}" +
  "{% if add_generation_prompt %}<assistant>{% endif %}";
const tokenizer = await BpeTokenizer.train(text.repeat(2), {
  vocabSize: 400,
  specialTokens: ["<|end|>"],
  chatTemplate,
});
const runtime = await Runtime.create({ gpu: create([]) });
const config = {
  model_type: "llama",
  vocab_size: tokenizer.vocabSize,
  hidden_size: 64,
  intermediate_size: 128,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  max_position_embeddings: 256,
  eos_token_id: tokenizer.endToken,
};
const model = await Model.create(runtime, config, { seed: 3 });
// A model of random weights gives bytes that are no text. This one knows the answers, each to the question before.
const messages = ([question], index) => [
  { role: "user", content: question },
  { role: "assistant", content: chats[(index + 1) % chats.length][1] },
];
const data = { learn: "all", validationFraction: 0 };
const dataset = await Dataset.fromConversations(chats.map(messages), tokenizer, data);
const trainer = await Trainer.create(model, { learningRate: 1.2e-2, tokensPerStep: 256 });
for await (const _ of trainer.run(dataset, { steps: 60 }));
trainer.free();

/** What the model says to a question, as chats.py tells it. */
async function answer(question) {
  const { tokens: prompt } = await chatPrompt([{ role: "user", content: question }], tokenizer);
  const steps = [];
  const options = { maxTokens: MOST, temperature: 0, alternatives: 2, stopTokens: [] };
  for await (const { token, alternatives } of model.generate(prompt, options)) {
    const [best, second] = alternatives;
    steps.push({ token, second: second.token, gap: best.logprob - second.logprob });
    if (token === tokenizer.endToken) break;
  }
  const ended = steps.at(-1).token === tokenizer.endToken;
  const drawn = (ended ? steps.slice(0, -1) : steps).map(({ token }) => token);
  return { question, prompt: [...prompt], steps, text: tokenizer.decode(drawn), ended };
}

const hf = join(folder, "hf32");
mkdirSync(hf, { recursive: true });
mkdirSync(join(folder, "chat"), { recursive: true });
for (const [name, bytes] of Object.entries({ ...(await model.save()), ...tokenizer.save() }))
  writeFileSync(join(hf, name), bytes);
const { "model.gguf": file } = await model.save({ format: "gguf", type: "f32", tokenizer });
writeFileSync(join(folder, "model.gguf"), file);
const answers = [];
for (const question of questions) answers.push(await answer(question));
const made = { most: MOST, ends: [tokenizer.endToken], answers };
writeFileSync(join(folder, "chat", "transformers.json"), JSON.stringify(made));
runtime.destroy();
await runtime.lost; // what the GPU still does would meet a process that ends
process.exit(0); // Dawn's threads would keep the process alive
