// Token healing: a prompt that ends within a word goes on as the text that it is, and not as its tokens.
import assert from "node:assert/strict";
import { test } from "node:test";
import { collect, ids, newModel, refuses, textOf, tinyloom } from "./kit.mjs";
import { byteLevel, sentencePiece } from "./tokenizers.mjs";

const { ByteTokenizer } = tinyloom;
const newModelOf = ({ vocabSize }, more) => newModel({ vocab_size: vocabSize, ...more });
const model = await newModelOf(byteLevel);
const options = (tokenizer, more) => ({
  heal: true,
  tokenizer,
  temperature: 0,
  maxTokens: 8,
  ...more,
});
/**
 * What healing has to give, found by trying every token: after the prompt without its last tokens, each token is the
 * likeliest of those whose text agrees with what was taken back.
 */
async function reference(model, kept, taken, tokens, vocabulary) {
  const text = [...kept];
  let rest = taken;
  for (const token of tokens) {
    const row = (await model.logits(text)).slice(-model.config.vocab_size);
    const agrees = (id) => {
      const piece = vocabulary.get(id);
      return rest === "" || (piece && (piece.startsWith(rest) || rest.startsWith(piece)));
    };
    const best = row.reduce(
      (most, x, id) => (agrees(id) && x > row[most] ? id : most),
      rest === "" ? 0 : [...vocabulary.keys()].find(agrees),
    );
    assert.equal(token, best, `behind ${JSON.stringify(rest)}`);
    rest = rest.slice(vocabulary.get(token)?.length ?? rest.length);
    text.push(token);
  }
}

/** Tokens that are no special ones, with what they spell. */
function vocabularyOf(tokenizer, space) {
  const file = JSON.parse(new TextDecoder().decode(tokenizer.save()["tokenizer.json"]));
  const special = new Set((file.added_tokens ?? []).map(({ id }) => id));
  const all = Object.entries(file.model.vocab).filter(([, id]) => !special.has(id));
  return new Map(all.map(([piece, id]) => [id, piece.replaceAll(space, " ")]));
}

const spellings = [
  ["byte-level BPE", byteLevel, "Ġ"],
  ["SentencePiece", await sentencePiece(), "▁"],
];

for (const [name, tokenizer, space] of spellings) {
  test(`${name}: the first tokens spell what was taken back, and the text goes on`, async () => {
    const model = await newModelOf(tokenizer);
    const vocabulary = vocabularyOf(tokenizer, space);
    let taken = 0;
    for (const prompt of ["hello wor", "the w", "the worl", "hello the wo", "the world"]) {
      const drawn = await collect(model.generate(prompt, options(tokenizer)));
      const text = [...tokenizer.encode(prompt)];
      // The longest end of the prompt, from a token on, with which a longer token begins.
      let from = text.length;
      for (let at = text.length - 1; at > 0; at--) {
        if (!vocabulary.has(text[at])) break;
        const end = text
          .slice(at)
          .map((id) => vocabulary.get(id))
          .join("");
        const longer = ([, piece]) => piece.startsWith(end) && piece.length > end.length;
        if ([...vocabulary].some(longer)) from = at;
      }
      const end = text
        .slice(from)
        .map((id) => vocabulary.get(id))
        .join("");
      if (end) taken += 1;
      await reference(model, text.slice(0, from), end, ids(drawn), vocabulary);
      // The whole text is the prompt and what was yielded, and nothing of it twice.
      const whole = tokenizer.decode([...text.slice(0, from), ...ids(drawn)]);
      const begun = tokenizer.decode([...text.slice(0, from), ...text.slice(from)]);
      assert.equal(begun + textOf(drawn).replace(/\ufffd+$/, ""), whole.replace(/\ufffd+$/, ""));
    }
    assert.ok(taken >= 3, `${taken} prompts were healed`);
  });
}

test("a word that is cut goes on as the model knows it", async () => {
  // A model that was trained on the story as its tokens knows "Ġworld", and never "Ġw" with "or" behind it.
  const { Dataset, Trainer } = tinyloom;
  const small = await newModelOf(byteLevel, { initializer_range: 0.02 });
  const text = "the world is wide. ".repeat(200);
  const dataset = await Dataset.fromText(text, byteLevel, { sequenceLength: 32 });
  const trainer = await Trainer.create(small, {
    learningRate: 1e-2,
    warmupSteps: 5,
    seed: 0,
    tokensPerStep: 128,
  });
  await collect(trainer.run(dataset, { steps: 80 }));
  const write = async (prompt, heal) =>
    prompt + textOf(await collect(small.generate(prompt, { ...options(byteLevel), heal })));
  const prompts = ["the wo", "the worl", "the world is wi", "the world i"];
  const healed = await Promise.all(prompts.map((prompt) => write(prompt, true)));
  for (const one of healed)
    assert.ok("the world is wide. the world is wide. the".startsWith(one.slice(0, 30)), one);
  const plain = await Promise.all(prompts.map((prompt) => write(prompt, false)));
  assert.ok(
    plain.some((one) => !one.startsWith("the world is wide")),
    `without it all goes well too: ${plain}`,
  );
  small.free();
});

test("bias, seeds, limits and stop strings hold while it heals", async () => {
  const plain = options(byteLevel, { temperature: 1, seed: 5 });
  const first = await collect(model.generate("hello wor", plain));
  assert.deepEqual(await collect(model.generate("hello wor", plain)), first, "one seed, one text");
  assert.equal(first.length, 8);
  const one = await collect(model.generate("hello wor", { ...plain, maxTokens: 1 }));
  assert.deepEqual(ids(one), ids(first).slice(0, 1));
  const seen = [];
  const own = (tokens) => void seen.push(tokens.length);
  const biased = await collect(model.generate("hello wor", { ...plain, bias: own }));
  assert.deepEqual(ids(biased), ids(first), "a function that gives no bias");
  assert.equal(seen.length, 8);
  const world = byteLevel.encode(" world")[0];
  const kept = await collect(
    model.generate("hello wor", { ...options(byteLevel), bias: [[world, 1e4]], maxTokens: 3 }),
  );
  assert.equal(textOf(kept).slice(0, 2), "ld");
  assert.equal(ids(kept).filter((id) => id === world).length, 3, "and behind it the bias stays");
  const stopped = await collect(
    model.generate("hello wor", {
      ...options(byteLevel),
      bias: [[world, 1e4]],
      stop: ["d w", "wor"],
    }),
  );
  assert.equal(textOf(stopped), "l", "the prompt is not searched");
  const looked = await collect(model.generate("hello wor", { ...plain, promptLookup: true }));
  assert.deepEqual(ids(looked), ids(first));
});

test("tokens are healed as a text is, and special ones never taken back", async () => {
  const tokenizer = await sentencePiece();
  const pieces = await newModelOf(tokenizer);
  const text = [...tokenizer.encode("the wor")];
  const drawn = await collect(pieces.generate(text, options(tokenizer)));
  assert.deepEqual(drawn, await collect(pieces.generate("the wor", options(tokenizer))));
  const turn = byteLevel.encode("the world<|start|>");
  const behind = await collect(model.generate(turn, options(byteLevel, { stopTokens: [] })));
  const plain = options(byteLevel, { heal: false, stopTokens: [] });
  assert.deepEqual(ids(behind), ids(await collect(model.generate(turn, plain))));
});

test("it is refused by name where tokens spell no text, and nothing to do for bytes", async () => {
  const spelled = {
    encode: (text) => [...text].map(() => 7),
    decoder: () => ({ push: () => "", end: () => "" }),
  };
  await refuses("invalid-options", ["heal", "tokenizer.json"], () =>
    model.generate([5, 6], { heal: true, tokenizer: spelled }),
  );
  await refuses("invalid-options", ["heal needs the tokenizer"], () =>
    model.generate([5], { heal: true }),
  );
  await refuses("invalid-options", ["heal"], () => model.generateBatch([[5]], { heal: true }));
  const bytes = await newModel();
  const tokenizer = new ByteTokenizer();
  const drawn = await collect(bytes.generate("ab", options(tokenizer)));
  assert.deepEqual(
    ids(drawn),
    ids(await collect(bytes.generate("ab", { ...options(tokenizer), heal: false }))),
  );
});

test("what a tokenizer's save() gives wrong is refused", async () => {
  const bytes = (text) => new TextEncoder().encode(text);
  for (const save of [
    () => {
      throw new Error("no files");
    },
    () => ({ "tokenizer.json": bytes("{") }),
    () => ({ "tokenizer.json": bytes("null") }),
    () => ({ "tokenizer.json": bytes("{}") }),
    () => ({ "tokenizer.json": bytes('{"model":{},"decoder":{"type":"ByteLevel"}}') }),
    () => ({ "tokenizer.json": 5 }),
  ]) {
    const tokenizer = {
      vocabSize: 320,
      encode: (text, more) => byteLevel.encode(text, more),
      decoder: (more) => byteLevel.decoder(more),
      save,
    };
    await refuses("invalid-options", ["generate: heal"], () =>
      model.generate("the wor", { heal: true, tokenizer }),
    );
  }
});
