// The calls of generation through a worker: seeds that the page reads at once, texts as prompts, chats.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { Worker } from "node:worker_threads";
import { dawnEnv } from "../../scripts/machine.mjs";
import { collect, config, ids, json, newModel, parsed, textOf } from "./kit.mjs";
import { byteLevel, template } from "./tokenizers.mjs";

const { connect } = await import("tinyloom/worker");
Object.assign(process.env, dawnEnv());
const worker = new Worker(new URL("served.mjs", import.meta.url));
const { Dataset, Runtime, Model, Tokenizer, ByteTokenizer, chat, close } = await connect({
  worker,
});
const runtime = await Runtime.create();
const files = await (await newModel({ vocab_size: byteLevel.vocabSize })).save();
const [word] = byteLevel.encode(" world");
const given = {
  ...files,
  "generation_config.json": json({ eos_token_id: word }),
};
const direct = await (await import("tinyloom")).Model.fromPretrained(
  (await import("./kit.mjs")).runtime,
  given,
);
const model = await Model.fromPretrained(runtime, given);
const tokenizer = await Tokenizer.fromPretrained(byteLevel.save());
const options = { maxTokens: 8, temperature: 1, stopTokens: [] };
after(async () => {
  await close();
  await worker.terminate();
});

test("what generate returns on the page has its seed at once", async () => {
  const one = model.generate([5], options);
  assert.ok(Number.isInteger(one.seed));
  assert.notEqual(model.generate([5], options).seed, one.seed);
  const tokens = ids(await collect(one));
  const { seed } = one;
  assert.deepEqual(ids(await collect(model.generate([5], { ...options, seed }))), tokens);
  assert.deepEqual(ids(await collect(direct.generate([5], { ...options, seed }))), tokens);
  assert.equal(model.generate([5], { seed: 7 }).seed, 7);
});

test("a batch has one seed for each text", async () => {
  const prompts = [Uint32Array.of(5), { prompt: [5], seed: 3 }, "the"];
  const batch = model.generateBatch(prompts, { ...options, tokenizer });
  assert.equal(batch.seeds.length, 3);
  assert.equal(batch.seeds[1], 3);
  const tokens = await collect(batch);
  const again = direct.generateBatch(
    prompts.map((one, index) => ({ prompt: one.prompt ?? one, seed: batch.seeds[index] })),
    { ...options, tokenizer: byteLevel },
  );
  const of = (all, index) => ids(all.filter((one) => one.index === index));
  const wanted = await collect(again);
  for (const index of [0, 1, 2]) assert.deepEqual(of(tokens, index), of(wanted, index), `${index}`);
});

test("ends, texts and healing are the same as without a worker", async () => {
  const greedy = { maxTokens: 8, temperature: 0 };
  for (const more of [{}, { heal: true }, { skipSpecialTokens: true }]) {
    const drawn = await collect(model.generate("hello wor", { ...greedy, tokenizer, ...more }));
    const wanted = direct.generate("hello wor", { ...greedy, tokenizer: byteLevel, ...more });
    assert.deepEqual(drawn, await collect(wanted), JSON.stringify(more));
  }
  const bytes = await Model.create(runtime, config, { seed: 11 });
  const own = { ...greedy, stopTokens: [], tokenizer: new ByteTokenizer() };
  assert.equal((await collect(bytes.generate("abc", own))).length, 8);
  const saved = await model.save();
  assert.deepEqual(parsed(saved["generation_config.json"]), { eos_token_id: word });
});

test("chat streams an answer that ends, and tells its seed", async () => {
  const messages = [{ role: "user", content: "hello world" }];
  const more = { ...options, template };
  const answer = chat(model, tokenizer, messages, more);
  const { seed } = answer;
  assert.ok(Number.isInteger(seed));
  const said = textOf(await collect(answer));
  const tinyloom = await import("tinyloom");
  const wanted = tinyloom.chat(direct, byteLevel, messages, { ...more, seed });
  assert.equal(said, textOf(await collect(wanted)));
  const bias = [[word, 1e6]];
  const { stopTokens: _, ...ending } = more;
  assert.deepEqual(await collect(chat(model, tokenizer, messages, { ...ending, bias })), []);
});

test("a function of the page says which messages are learned", async () => {
  const chats = [
    [
      { role: "user", content: "the world" },
      { role: "assistant", content: "hello" },
    ],
  ];
  const { Dataset: Direct } = await import("tinyloom");
  const learn = ({ role }) => role === "user";
  const options = { learn, template, validationFraction: 0 };
  const made = await Dataset.fromConversations(chats, tokenizer, options);
  const wanted = await Direct.fromConversations(chats, byteLevel, options);
  assert.equal(await made.hash, wanted.hash);
  const later = { ...options, learn: async (message) => learn(message) };
  assert.equal((await Direct.fromConversations(chats, byteLevel, later)).hash, wanted.hash);
  await assert.rejects(
    Direct.fromConversations(chats, byteLevel, { ...options, learn: async () => 1 }),
    { code: "invalid-options", message: /learn gave 1/ },
  );
});
