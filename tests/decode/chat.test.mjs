// chat: a prompt made by the template, an answer that stops, a cache that serves the next turn.
import assert from "node:assert/strict";
import { test } from "node:test";
import { collect, ids, internal, newModel, refuses, runtime, textOf, tinyloom } from "./kit.mjs";
import { byteLevel, template } from "./tokenizers.mjs";

const { chat, chatPrompt } = tinyloom;
const { vocabSize } = byteLevel;
const [end] = byteLevel.encode("<|end|>");
const [start] = byteLevel.encode("<|start|>");
const wide = { vocab_size: vocabSize, max_position_embeddings: 1024 };
const model = await newModel(wide);
const messages = [{ role: "user", content: "hello world" }];
const prompt = await chatPrompt(messages, byteLevel);

/** Words, then a token, then whatever comes. */
const saying = (text, last) => {
  const line = [...byteLevel.encode(text), last];
  let from;
  return (tokens) => {
    from ??= tokens.length;
    const next = line[tokens.length - from];
    return next === undefined ? undefined : [[next, 1e6]];
  };
};

test("an answer ends with its turn, and without special tokens", async () => {
  const answer = chat(model, byteLevel, messages, { bias: saying("the word is wild", end) });
  assert.equal(textOf(await collect(answer)), "the word is wild");
});

test("each source ends an answer, and given stop tokens replace them all", async () => {
  const other = byteLevel.encode("!")[0];
  const named = await newModel({ ...wide, eos_token_id: [other] });
  const by = (last, more) =>
    collect(
      chat(named, byteLevel, messages, {
        bias: saying("hello", last),
        maxTokens: 9,
        // What comes behind the answer is drawn, and may not be the token that is given.
        seed: 1,
        ...more,
      }),
    );
  for (const last of [end, other]) assert.equal(textOf(await by(last)), "hello", `${last}`);
  for (const last of [end, other, start]) {
    assert.equal((await by(last, { stopTokens: [] })).length, 9, "switched off");
  }
  const [given] = byteLevel.encode("?");
  assert.equal(textOf(await by(given, { stopTokens: [given] })), "hello");
  assert.equal((await by(end, { stopTokens: [given] })).length, 9);
  assert.equal(textOf(await by(end, { stop: ["ll"] })), "he", "stop strings are added");
  named.free();
});

test("it is generate behind the template's prompt, with the same seed", async () => {
  const options = { maxTokens: 12, stopTokens: [] };
  const answer = chat(model, byteLevel, messages, options);
  assert.ok(Number.isInteger(answer.seed));
  const drawn = ids(await collect(answer));
  const { seed } = answer;
  const same = model.generate(prompt.tokens, { ...options, seed });
  assert.deepEqual(drawn, ids(await collect(same)));
  assert.deepEqual(
    drawn,
    ids(await collect(chat(model, byteLevel, messages, { ...options, seed }))),
  );
  assert.notEqual(chat(model, byteLevel, messages).seed, seed);
});

test("tools and other values go to the template; a template may be given", async () => {
  const own = `{% for tool in tools %}{{ tool.name }};{% endfor %}{{ mood }}${template}`;
  const tools = [{ name: "look" }, { name: "walk" }];
  const options = { maxTokens: 6, temperature: 0, stopTokens: [], template: own };
  const said = { messages, mood: "calm" };
  const answer = await collect(chat(model, byteLevel, said, { ...options, tools }));
  const { text, tokens } = await chatPrompt({ ...said, tools }, byteLevel, { template: own });
  assert.ok(text.startsWith("look;walk;calm<|start|>"), text);
  const wanted = model.generate(tokens, { maxTokens: 6, temperature: 0, stopTokens: [] });
  assert.deepEqual(ids(answer), ids(await collect(wanted)));
});

test("the next turn reads only what is new", async () => {
  const counted = async (work) => {
    const before = internal.runtimes.of(runtime).counters();
    await work();
    const after = internal.runtimes.of(runtime).counters();
    return Object.fromEntries(Object.keys(after).map((name) => [name, after[name] - before[name]]));
  };
  const long = "the world is wide, the word is wild. ".repeat(24);
  const chatted = [{ role: "user", content: long }];
  const options = { temperature: 0, maxTokens: 4 };
  const own = await newModel(wide);
  let content = "";
  const bias = saying("hello", end);
  for await (const { text } of chat(own, byteLevel, chatted, { ...options, bias })) {
    content += text;
  }
  chatted.push({ role: "assistant", content }, { role: "user", content: "hello" });
  const ask = (by) => () =>
    collect(chat(by, byteLevel, chatted, { ...options, bias: saying("the", end) }));
  const second = await counted(ask(own));
  const fresh = await newModel(wide);
  await collect(fresh.generate([1], { maxTokens: 1 })); // what is compiled and made once
  const alone = await counted(ask(fresh));
  const told = JSON.stringify({ second, alone });
  assert.ok(second.dispatches < alone.dispatches && second.submits < alone.submits, told);
  own.free();
  fresh.free();
});

test("options are checked before anything is made, and undefined is none", async () => {
  const never = { ...byteLevel, decoder: () => assert.fail("built"), encode: () => assert.fail() };
  for (const [name, value] of Object.entries({
    stop: "END",
    signal: 5,
    stopTokens: 0,
    maxTokens: -1,
    tools: "weather",
  })) {
    await refuses("invalid-options", [`chat: ${name} is`], () =>
      chat(model, never, messages, { [name]: value }),
    );
  }
  await refuses("invalid-options", ["chat: stop is 5"], () =>
    chat(model, never, messages, { stop: 5 }),
  );
  const bias = () => saying("the word is wild", end);
  const unset = Object.fromEntries(
    ["maxTokens", "skipSpecialTokens", "stop", "stopTokens", "template", "tools"].map((name) => [
      name,
      undefined,
    ]),
  );
  const answer = chat(model, byteLevel, messages, { ...unset, bias: bias(), stopTokens: [] });
  const long = [];
  for await (const { text } of answer) if (long.push(text) > 130) break;
  assert.ok(long.length > 130, "more than the 128 tokens of generate");
  assert.ok(!long.join("").includes("<|end|>"), "special tokens are left out");
  const ended = chat(model, byteLevel, messages, { ...unset, tools: null, bias: bias() });
  assert.equal(textOf(await collect(ended)), "the word is wild");
});

test("messages are those of the call, and what is wrong comes from the loop", async () => {
  const list = [...messages];
  const options = { maxTokens: 6, temperature: 0, stopTokens: [] };
  const answer = chat(model, byteLevel, list, options);
  list.push({ role: "user", content: "and more" });
  const wanted = ids(await collect(chat(model, byteLevel, messages, options)));
  assert.deepEqual(ids(await collect(answer)), wanted);
  await refuses("invalid-options", ["chat takes a Model"], () => chat({}, byteLevel, messages));
  await refuses("invalid-options", ["tokenizer second"], () => chat(model, {}, messages));
  await refuses("invalid-options", ["chat", "plain object"], () =>
    chat(model, byteLevel, messages, 7),
  );
  await refuses("invalid-options", ["chat has no option", "topk"], () =>
    chat(model, byteLevel, messages, { topk: 3 }),
  );
  await refuses("invalid-options", ["chat", "messages"], () => chat(model, byteLevel, "hello"));
  await refuses("aborted", [], () =>
    chat(model, byteLevel, messages, { signal: AbortSignal.abort() }),
  );
});
