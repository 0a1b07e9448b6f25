// Hidden states and attention beside the rest of the API: long texts, other calls on the model, refusals. What
// they are to be is said by PyTorch, in fixtures.mjs. The texts of kernels.
import { close, equal, ok, refuses, sameBytes } from "../../api/bodies/assert.mjs";
import { batch, collect, config, trainerOptions } from "../../api/bodies/kit.mjs";

/** Longer texts than a chunk of 256 tokens; heads that are no power of two, three for one of keys. */
const LONG = {
  ...config,
  hidden_size: 48,
  num_attention_heads: 3,
  num_key_value_heads: 1,
  head_dim: 12,
  max_position_embeddings: 1024,
};

const make = ({ tinyloom, runtime }, sizes = config) =>
  tinyloom.Model.create(runtime, sizes, { seed: 19 });

/** Each row is of probabilities, of the positions that it sees alone. */
function rowsOf(shares, count, window = count) {
  for (let row = 0; row < count; row++) {
    let sum = 0;
    for (let column = 0; column < count; column++) {
      const share = shares[row * count + column];
      const seen = column <= row && column > row - window;
      ok(seen ? share >= 0 && share < 1.00001 : share === 0, `${row} to ${column}: ${share}`);
      sum += share;
    }
    close(sum, 1, 1e-5, `row ${row}`);
  }
}

/** Where this body's cases run: see hosts.mjs. */
export const place = {
  whole: ["firefox"],
  why: "plans and chunks are the module's; fixtures hold PyTorch's numbers, some of them in Node and samples in the browsers",
  smoke: ["the last hidden state has the logits, the first is the embedding"],
};

export const cases = {
  async "the rows of a long text begin with those of its beginning"(host) {
    const { tokens } = batch(300);
    for (const sliding_window of [undefined, 20]) {
      const model_type = sliding_window ? "mistral" : "llama";
      const model = await make(host, { ...LONG, model_type, sliding_window });
      const [whole, beginning] = [tokens, tokens.slice(0, 9)];
      const look = (ids) => model.attention(ids, { layer: 1, head: 2 });
      const [long, short] = [await look(whole), await look(beginning)];
      equal([long.length, short.length], [300 * 300, 81], "numbers");
      rowsOf(long, 300, sliding_window);
      for (let row = 0; row < 9; row++) {
        for (let column = 0; column < 9; column++) {
          close(long[row * 300 + column], short[row * 9 + column], 1e-5, `${row} to ${column}`);
        }
      }
      const states = await model.hiddenStates(whole, { layer: 1 });
      const first = await model.hiddenStates(beginning, { layer: 1 });
      equal([states.length, first.length], [300 * 48, 9 * 48], "numbers of hidden states");
      for (const [index, value] of first.entries()) close(states[index], value, 1e-5, "a state");
      model.free();
    }
  },

  async "the last hidden state has the logits, the first is the embedding"(host) {
    const model = await make(host);
    const { tokens } = batch(12);
    const { hidden_size: hidden, vocab_size: vocabulary } = config;
    // Tied: the same rows embed a token and tell its logit.
    const rows = await model.hiddenStates(
      Uint8Array.from({ length: 60 }, (_, i) => i),
      { layer: 0 },
    );
    const last = await model.hiddenStates(tokens, { layer: 2 });
    const logits = await model.logits(tokens);
    const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
    for (let at = 0; at < 12; at++) {
      const state = last.slice(at * hidden, (at + 1) * hidden);
      for (const token of [0, 32, 59]) {
        const logit = dot(state, rows.subarray(token * hidden, (token + 1) * hidden));
        close(logits[at * vocabulary + token], logit, 1e-5, `logit of token ${token} at ${at}`);
      }
    }
    model.free();
  },

  async "they see the weights as they are, and leave texts and training alone"(host) {
    const { Trainer } = host.tinyloom;
    const { tokens } = batch(16);
    const train = async (between) => {
      const model = await make(host);
      const trainer = await Trainer.create(model, trainerOptions);
      const seen = [];
      for (let step = 0; step < 3; step++) {
        await trainer.step(batch(32, step * 30));
        seen.push(await between(model));
      }
      const weights = (await model.save())["model.safetensors"];
      model.free();
      return { seen, weights };
    };
    const look = async (model) => {
      const text = model.generate(tokens, { maxTokens: 6, temperature: 0 });
      const drawn = [(await text.next()).value.token];
      const shares = await model.attention(tokens, { layer: 1, head: 1 });
      rowsOf(shares, 16);
      for await (const { token } of text) drawn.push(token);
      const plain = await collect(model.generate(tokens, { maxTokens: 6, temperature: 0 }));
      equal(
        drawn,
        plain.map(({ token }) => token),
        "a text that goes on behind a look",
      );
      return shares;
    };
    const looked = await train(look);
    const alone = await train(async () => undefined);
    sameBytes(looked.weights, alone.weights, "weights after looks between steps");
    ok(
      looked.seen[0].some((share, i) => share !== looked.seen[2][i]),
      "attention moves with the weights",
    );
  },

  async "packed formats show"(host) {
    const model = await make(host);
    const { tokens } = batch(40);
    const at = { layer: 1, head: 0 };
    const plain = await model.attention(tokens, at);
    for (const packed of [{ kvCache: "int8" }, { kvCache: "f16" }, { weights: "int8" }]) {
      const shares = await model.attention(tokens, { ...at, ...packed });
      rowsOf(shares, 40);
      const most = shares.reduce((far, share, i) => Math.max(far, Math.abs(share - plain[i])), 0);
      ok(most > 0 && most < 0.02, `${JSON.stringify(packed)} moves a probability by ${most}`);
    }
    sameBytes(await model.attention(tokens, at), plain, "f32 again");
    model.free();
  },

  async "each row of a plan has the text that the device compiles"(host) {
    const { tinyloom, runtime } = host;
    const model = await make(host);
    const trainer = await tinyloom.Trainer.create(model, trainerOptions);
    const rows = trainer.plan();
    const texts = new Map();
    for (const [index, { kernel, workgroupSize, bindings }] of rows.entries()) {
      const text = trainer.wgsl(index);
      const entry = `@compute @workgroup_size(${workgroupSize[0]})\nfn ${kernel}(`;
      ok(text.includes(entry), `the text of row ${index} has no ${entry}`);
      for (const [place, { name }] of bindings.entries()) {
        const [, at] = new RegExp(`@binding\\((\\w+)\\) var<[^>]*> ${name}:`).exec(text) ?? [];
        // A constant of the kernel says it where what comes before depends on the kernel.
        const [, constant] = new RegExp(`const ${at}: u32 = (\\d+)u;`).exec(text) ?? [];
        equal(constant ?? at, `${place}`, `where the text of row ${index} binds ${name}`);
      }
      texts.set(text, kernel);
    }
    for (const [code, kernel] of texts) {
      const shader = runtime.device.createShaderModule({ code });
      const { messages } = await shader.getCompilationInfo();
      const errors = messages.filter(({ type }) => type === "error");
      equal(errors.length, 0, `errors in ${kernel}`);
    }
    const trap = { valueOf: () => ok(false, "its value was asked for") };
    for (const row of [rows.length, -1, 0.5, Number.NaN, undefined, trap]) {
      await refuses("invalid-options", [`rows 0 to ${rows.length - 1}`], () => trainer.wgsl(row));
    }
    model.free();
    await refuses("freed", "Trainer", () => trainer.wgsl(0));
    return `${rows.length} rows, ${texts.size} texts`;
  },

  async "looks that cannot be"(host) {
    const model = await make(host);
    const held = model.gpuBytes;
    const wrong = (words, work) => refuses("invalid-options", words, work);
    await wrong(["layer", "missing"], () => model.hiddenStates([1]));
    await wrong(["layer", "missing"], () => model.attention([1], {}));
    await wrong(["head", "missing"], () => model.attention([1], { layer: 0 }));
    await wrong(["layer is 3", "hidden states 0 to 2"], () =>
      model.hiddenStates([1], { layer: 3 }),
    );
    await wrong(["layer is 2", "layers 0 to 1"], () => model.attention([1], { layer: 2, head: 0 }));
    await wrong(["head is 2", "heads 0 to 1"], () => model.attention([1], { layer: 0, head: 2 }));
    for (const layer of [-1, 0.5, "0", null, Number.NaN, 2 ** 32]) {
      await wrong("layer", () => model.hiddenStates([1], { layer }));
      await wrong("layer", () => model.attention([1], { layer, head: 0 }));
      await wrong("head", () => model.attention([1], { layer: 0, head: layer }));
    }
    await wrong("head", () => model.hiddenStates([1], { layer: 0, head: 0 }));
    await wrong("options", () => model.attention([1], 5));
    await wrong("kvCache", () => model.attention([1], { layer: 0, head: 0, kvCache: "f8" }));
    const tokens = (words, ids) =>
      refuses("invalid-tokens", words, () => model.attention(ids, { layer: 0, head: 0 }));
    await tokens("empty", []);
    await tokens("256", [1, 256]);
    await tokens("max_position_embeddings", new Uint32Array(65));
    equal(model.gpuBytes, held, "bytes after refusals");
    const whole = await model.attention(new Uint32Array(64), { layer: 1, head: 1 });
    equal(whole.length, 64 * 64, "as many tokens as the model has positions");
    const look = async () => {
      await model.hiddenStates([1, 2], { layer: 1 });
      await model.attention([1, 2], { layer: 1, head: 0 });
      return model.gpuBytes;
    };
    equal(await look(), await look(), "bytes of looks that repeat");
    model.free();
    await refuses("freed", "Model", () => model.attention([1], { layer: 0, head: 0 }));
  },
};
