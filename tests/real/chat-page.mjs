// In a page: chats with the model of a GGUF file, and what is made of it.
import { Adapter, chat, chatPrompt, Dataset, Model, Runtime, Tokenizer, Trainer } from "tinyloom";
import { continued } from "/tests/files/gguf/page.mjs";

/** The chats are learned by heart. */
const TRAINING = { learningRate: 2e-3, warmupSteps: 2, schedule: "constant", weightDecay: 0 };
const STEPS = 30;

/** Progress is told to who reads the console. */
const told = (text) => console.info(text);

/** The model and the tokenizer, from the file alone. */
async function opened(gguf) {
  const runtime = await Runtime.create();
  const began = performance.now();
  const address = new URL(gguf, location.href);
  const model = await Model.fromPretrained(runtime, address);
  const tokenizer = await Tokenizer.fromPretrained(address);
  told(`loaded in ${((performance.now() - began) / 1000).toFixed(1)} s`);
  return { runtime, model, tokenizer };
}

const asked = (question) => [{ role: "user", content: question }];

/** The greedy answer to a question: its tokens, and its text as it came. */
async function answered({ model, tokenizer }, question, most, more = {}) {
  const options = { temperature: 0, maxTokens: most, ...more };
  const { tokens: prompt, text: asText } = await chatPrompt(asked(question), tokenizer);
  const [tokens, pieces] = [[], []];
  for await (const { token, text } of chat(model, tokenizer, asked(question), options)) {
    tokens.push(token);
    pieces.push(text);
  }
  told(`${question} ${pieces.join("")}`);
  return { prompt: [...prompt], asText, tokens, pieces };
}

async function all(model, questions, most, more) {
  const answers = [];
  for (const question of questions) answers.push(await answered(model, question, most, more));
  return answers;
}

const about = ({ capabilities: { adapter, software } }) => ({ adapter, software });

/** Greedy answers of the model to questions, and the adapter that computed. */
export async function answers(gguf, questions, most) {
  const model = await opened(gguf);
  return { about: about(model.runtime), answers: await all(model, questions, most) };
}

const base64 = (bytes) => {
  let text = "";
  for (let at = 0; at < bytes.length; at += 1 << 15)
    text += String.fromCharCode(...bytes.subarray(at, at + (1 << 15)));
  return btoa(text);
};

/**
 * Trains an adapter on chats, asks for them, merges it, and asks llama.cpp with the GGUF file of the whole.
 *
 * @returns the losses, tinyloom's answers with the adapter and with the merged model, the texts of llama.cpp's, and the
 *   adapter's files in base64.
 */
export async function tuned(gguf, chats, most) {
  const loaded = await opened(gguf);
  const { model, tokenizer } = loaded;
  const messages = ([question, answer]) => [
    ...asked(question),
    { role: "assistant", content: answer },
  ];
  const conversations = chats.map(messages);
  const dataset = await Dataset.fromConversations(conversations, tokenizer, {
    validationFraction: 0,
  });
  const adapter = await Adapter.create(model, { rank: 8, alpha: 16, targets: "all-linear" });
  const trainer = await Trainer.create(adapter, { ...TRAINING, tokensPerStep: 512 });
  const losses = [];
  for await (const { loss } of trainer.run(dataset, { steps: STEPS })) {
    losses.push(loss);
    told(`step ${losses.length}: loss ${loss.toFixed(4)}`);
  }
  trainer.free();
  const questions = chats.map(([question]) => question);
  const withAdapter = await all(loaded, questions, most, { adapter });
  const files = await adapter.save();
  await adapter.merge();
  const merged = await all(loaded, questions, most);
  const whole = await model.save({ format: "gguf", type: "f16", tokenizer });
  told(`model.gguf of ${whole["model.gguf"].length} bytes`);
  const prompts = withAdapter.map(({ asText }) => asText);
  loaded.runtime.destroy();
  const file = new Blob([whole["model.gguf"]]);
  // With probabilities llama.cpp's server tells each token's text, and fails at a part of a character.
  const more = { ignore_eos: false, logprobs: undefined };
  const { answers, error } = await continued("", file, prompts, most, more);
  if (error) throw new Error(error);
  const saved = Object.entries(files).map(([name, bytes]) => [name, base64(bytes)]);
  return {
    about: about(loaded.runtime),
    losses,
    withAdapter,
    merged,
    llama: answers.map(({ text, read }) => ({ text, read })),
    adapter: Object.fromEntries(saved),
  };
}
