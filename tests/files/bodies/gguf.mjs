// Files for llama.cpp: what goes into one, what is refused, and where it is written.

import { equal, ok, refuses, sameBytes, sameFiles } from "../../api/bodies/assert.mjs";
import { config, makeFile, openFile } from "../../api/bodies/kit.mjs";
import { checkpointOf, readGguf } from "../gguf/read.mjs";

const FILE = "model.gguf";
const format = "gguf";
/** Files of a tokenizer that `BpeTokenizer` trains, to be changed. */
async function trained({ BpeTokenizer }) {
  const files = (await BpeTokenizer.train("a loom, a web ".repeat(9), { vocabSize: 270 })).save();
  const json = JSON.parse(new TextDecoder().decode(files["tokenizer.json"]));
  const changed = (change) => ({
    ...files,
    "tokenizer.json": new TextEncoder().encode(JSON.stringify({ ...json, ...change })),
  });
  return { files, json, changed };
}

/** The same checkpoint with another first weight of a tensor. */
function withWeight(files, name, value) {
  const bytes = files["model.safetensors"].slice();
  const { header, data } = openFile(bytes);
  const [begin] = header[name].data_offsets;
  new DataView(data.buffer, data.byteOffset).setFloat32(begin, value, true);
  const { __metadata__, ...tensors } = header; // its checksums
  return { ...files, "model.safetensors": makeFile(tensors, data) };
}

/** Compares a file in f32 with a checkpoint, bit for bit. */
function expectWeights(read, checkpoint) {
  const { header, data } = openFile(checkpoint);
  const { __metadata__, ...tensors } = header;
  const own = checkpointOf(read);
  equal(Object.keys(own).sort(), Object.keys(tensors).sort(), "names");
  for (const [name, { shape, data_offsets }] of Object.entries(tensors)) {
    equal(own[name].shape, shape, `the shape of ${name}`);
    sameBytes(own[name].values, data.subarray(...data_offsets), name);
  }
}

const vocab_size = 256;
const GPT_2 = {
  model_type: "gpt2",
  vocab_size,
  n_embd: 64,
  n_layer: 2,
  n_head: 2,
  n_positions: 64,
};
const GPT_NEOX = {
  model_type: "gpt_neox",
  vocab_size,
  hidden_size: 64,
  intermediate_size: 128,
  num_hidden_layers: 2,
  num_attention_heads: 2,
  max_position_embeddings: 64,
};
const GPT_NEO = {
  model_type: "gpt_neo",
  vocab_size,
  hidden_size: 64,
  num_layers: 2,
  num_heads: 2,
  max_position_embeddings: 64,
};
const GEMMA_2 = { ...config, model_type: "gemma2", head_dim: 32, query_pre_attn_scalar: 32 };
const GEMMA_3 = { ...GEMMA_2, model_type: "gemma3_text" };
/** What Gemma 1 has not. */
const NO_WINDOW = { query_pre_attn_scalar: undefined };

/** Where this body's cases run: see hosts.mjs. */
export const place = {
  whole: ["node"],
  why: "the file is made in TypeScript; streams are the host's",
  smoke: ["a stream gets the bytes of a save into memory"],
};

/** The words of Llama 3. */
const LLAMA_3 = String.raw`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`;

export const cases = {
  async "a file in f32 has the weights of the checkpoint"({ tinyloom, runtime }) {
    const model = await tinyloom.Model.create(runtime, config, { seed: 4 });
    const { [FILE]: bytes } = await model.save({ format, type: "f32", tokenizer: null });
    const read = readGguf(bytes);
    equal(read.metadata["tokenizer.ggml.model"], "none");
    equal(read.metadata["llama.vocab_size"], config.vocab_size);
    expectWeights(read, (await model.save())["model.safetensors"]);
    model.free();
  },

  async "a stream gets the bytes of a save into memory"({ tinyloom, runtime }) {
    const { Model, ByteTokenizer } = tinyloom;
    const model = await Model.create(runtime, config, { seed: 4 });
    const options = { format, type: "q8_0", tokenizer: new ByteTokenizer() };
    const expected = await model.save(options);
    const [pieces, stages] = [[], new Set()];
    const stream = new WritableStream({ write: (bytes) => void pieces.push(bytes.slice()) });
    const onProgress = ({ stage }) => stages.add(stage);
    equal(await model.save({ ...options, to: { [FILE]: stream }, onProgress }), undefined);
    ok(pieces.length > 3, `${pieces.length} pieces`);
    const length = pieces.reduce((sum, piece) => sum + piece.length, 0);
    const joined = new Uint8Array(length);
    let at = 0;
    for (const piece of pieces) {
      joined.set(piece, at);
      at += piece.length;
    }
    sameFiles({ [FILE]: joined }, expected);
    equal([...stages], [`read ${FILE}`], "stages");
    await refuses("invalid-options", [FILE, "config.json"], () =>
      model.save({ ...options, to: { "config.json": new WritableStream() } }),
    );
    model.free();
  },

  async "what is no file of llama.cpp's is refused"({ tinyloom, runtime }) {
    const { Adapter, ByteTokenizer, Model } = tinyloom;
    const tokenizer = new ByteTokenizer();
    const model = await Model.create(runtime, config, { seed: 4 });
    const save = (more) => model.save({ format, tokenizer, ...more });
    await refuses("invalid-options", ['"safetensors" | "gguf"'], () => save({ format: "onnx" }));
    await refuses("invalid-options", ["type", '"q4_0"'], () => save({ type: "q4_k" }));
    await refuses("invalid-options", ["tokenizer", "null for none"], () => model.save({ format }));
    await refuses("invalid-options", ['format: "gguf"'], () => model.save({ type: "f16" }));
    await refuses("invalid-options", ['format: "gguf"'], () => model.save({ tokenizer }));
    const adapter = await Adapter.create(model, { rank: 2 });
    await refuses("invalid-options", ["adapter", "merge"], () => save());
    await adapter.merge();
    ok((await save())[FILE].length > 1000, "merged");
    const other = await Adapter.create(model, { rank: 2 });
    other.free();
    ok((await save())[FILE].length > 1000, "without the adapter");
    const letters = { vocabSize: 256, encode: () => [1], decode: () => "a" };
    for (const one of [letters, { ...letters, save: () => undefined }]) {
      const words = ["this tokenizer has no files", "give null"];
      await refuses("invalid-options", words, () => save({ tokenizer: one }));
    }
    model.free();
  },

  async "of a packed model the message says what works, and it does"({ tinyloom, runtime }) {
    const { Adapter, Model } = tinyloom;
    const made = await Model.create(runtime, config, { seed: 4 });
    const source = await made.save();
    made.free();
    for (const weights of ["int4", "f16"]) {
      const model = await Model.fromPretrained(runtime, source, { weights });
      const save = () => model.save({ format, tokenizer: null });
      const alone = [`in ${weights}`, "Model.fromPretrained(runtime, source)"];
      const told = await refuses("invalid-options", alone, save);
      ok(!told.message.includes("merge"), told.message);
      const adapter = await Adapter.create(model, { rank: 2 });
      const words = [
        `in ${weights}`,
        "adapter.saveMerged(source)",
        "fromPretrained(runtime, files)",
      ];
      const both = await refuses("invalid-options", words, save);
      ok(!both.message.includes("merge()"), both.message);
      const whole = await Model.fromPretrained(runtime, await adapter.saveMerged(source));
      ok((await whole.save({ format, tokenizer: null }))[FILE].length > 1000, "a file");
      for (const one of [model, whole]) one.free();
    }
  },

  async "a model is named as a Phi-3 where its tokenizer has that one's tokens"({
    tinyloom,
    runtime,
  }) {
    const { BpeTokenizer, Model } = tinyloom;
    const own = ["</s>", "<unk>", "<s>", "<|endoftext|>"];
    for (const specialTokens of [own, own.slice(0, 3)]) {
      const tokenizer = await BpeTokenizer.train("one two one two one two", {
        vocabSize: 262,
        specialTokens,
      });
      const vocab_size = tokenizer.vocabSize;
      for (const [path, alike, other] of [
        ["org/Phi-3-mini", "Phi-3-mini", "phi 3-mini"],
        ["org/Phi-4-mini", "Phi-4-mini", "Phi-4-mini"],
      ]) {
        const named = { ...config, vocab_size, _name_or_path: path };
        const model = await Model.create(runtime, named, { seed: 4 });
        const save = (more) => model.save({ format, type: "f32", ...more });
        const nameIn = ({ [FILE]: bytes }) => readGguf(bytes).metadata["general.name"];
        const complete = specialTokens.length === own.length;
        equal(nameIn(await save({ tokenizer })), complete ? alike : other);
        equal(nameIn(await save({ tokenizer: null })), alike);
        const mine = () => save({ tokenizer, name: "my-phi3" });
        if (complete) equal(nameIn(await mine()), "my-phi3");
        else await refuses("invalid-options", ["my-phi3", "<|endoftext|>", "another name"], mine);
        model.free();
      }
    }
  },

  async "models that llama.cpp computes otherwise are refused"({ tinyloom, runtime }) {
    const rope = { rope_type: "yarn", factor: 2, original_max_position_embeddings: 32 };
    const llama3 = { ...rope, rope_type: "llama3", low_freq_factor: 1, high_freq_factor: 4 };
    const pairs = Array(64).fill(2); // qwen3 has heads of 128
    const longrope = { rope_type: "longrope", short_factor: pairs, long_factor: pairs };
    for (const [change, word] of [
      [{ hidden_act: "gelu" }, "hidden_act"],
      [{ attn_logit_softcapping: 20 }, "attn_logit_softcapping"],
      [{ rope_scaling: { ...rope, truncate: false } }, "truncate"],
      [{ model_type: "qwen3", rope_scaling: llama3 }, "llama3"],
      [{ model_type: "qwen3", rope_scaling: longrope }, "longrope"],
      [{ model_type: "smollm3", rope_scaling: llama3 }, "llama3"],
      [{ ...GEMMA_2, model_type: "gemma", ...NO_WINDOW, tie_word_embeddings: false }, "tie_word"],
      [{ ...GEMMA_2, model_type: "gemma", ...NO_WINDOW, rope_scaling: llama3 }, "llama3"],
      [{ ...GEMMA_2, attn_logit_softcapping: null }, "attn_logit_softcapping as a number"],
      [{ ...GEMMA_2, final_logit_softcapping: null }, "final_logit_softcapping as a number"],
      [{ ...GEMMA_2, query_pre_attn_scalar: 256 }, "query_pre_attn_scalar 32"],
      [{ ...GEMMA_2, hidden_activation: "silu" }, "hidden_activation"],
      [{ ...GEMMA_2, layer_types: ["full_attention", "sliding_attention"] }, "layer_types"],
      [{ ...GEMMA_3, final_logit_softcapping: 30 }, "final_logit_softcapping null"],
      [{ ...GEMMA_3, rope_scaling: rope }, "rope_type"],
    ]) {
      const model = await tinyloom.Model.create(runtime, { ...config, ...change });
      await refuses("invalid-options", ["llama.cpp", word], () =>
        model.save({ format, tokenizer: null }),
      );
      model.free();
    }
    for (const [other, word] of [
      [{ ...GPT_2, activation_function: "silu" }, "activation_function"],
      [{ ...GPT_NEOX, attention_bias: false }, "attention_bias true"],
      [{ ...GPT_NEOX, tie_word_embeddings: true }, "tie_word_embeddings false"],
      [{ ...GPT_NEOX, hidden_act: "silu" }, "hidden_act"],
      [{ ...GPT_NEOX, rope_scaling: llama3 }, "llama3"],
      [GPT_NEO, "llama.cpp does not know it"],
    ]) {
      const model = await tinyloom.Model.create(runtime, other);
      await refuses("invalid-options", ["llama.cpp", word], () =>
        model.save({ format, tokenizer: null }),
      );
      model.free();
    }
  },

  async "matrices larger than a piece are written in another order"({ tinyloom, runtime }) {
    for (const large of [
      { ...GPT_2, n_embd: 512, n_inner: 2080, n_layer: 1 },
      { ...GPT_NEOX, hidden_size: 640, num_attention_heads: 5, num_hidden_layers: 1 },
    ]) {
      const model = await tinyloom.Model.create(runtime, large, { seed: 4 });
      const { [FILE]: bytes } = await model.save({ format, type: "f32", tokenizer: null });
      expectWeights(readGguf(bytes), (await model.save())["model.safetensors"]);
      const { [FILE]: halves } = await model.save({ format, tokenizer: null });
      ok(halves.length < 0.6 * bytes.length, "in f16");
      model.free();
    }
  },

  async "weights that a type cannot hold are refused, and the stream is aborted"({
    tinyloom,
    runtime,
  }) {
    const model = await tinyloom.Model.create(runtime, config, { seed: 4 });
    const files = await model.save();
    model.free();
    const name = "model.layers.1.mlp.up_proj.weight";
    for (const [value, type] of [
      [70_000, "f16"],
      [600_000, "q4_0"],
    ]) {
      const changed = await tinyloom.Model.fromPretrained(runtime, withWeight(files, name, value));
      let end = "open";
      const stream = new WritableStream({
        close() {
          end = "closed";
        },
        abort() {
          end = "aborted";
        },
      });
      await refuses("invalid-options", ["blk.1.ffn_up.weight", String(value)], () =>
        changed.save({ format, type, tokenizer: null, to: { [FILE]: stream } }),
      );
      equal(end, "aborted");
      changed.free();
    }
    const large = await tinyloom.Model.fromPretrained(runtime, withWeight(files, name, 70_000));
    for (const type of ["f32", "q8_0", "q4_0"]) await large.save({ format, type, tokenizer: null });
    large.free();
  },

  async "tokenizers that llama.cpp would read otherwise are refused"({ tinyloom, runtime }) {
    const vocab_size = 280;
    const model = await tinyloom.Model.create(runtime, { ...config, vocab_size });
    const { files, json, changed } = await trained(tinyloom);
    const save = (tokenizer) => model.save({ format, tokenizer });
    const { metadata } = readGguf((await save(files))[FILE]);
    equal(metadata["tokenizer.ggml.pre"], "gpt-2");
    equal(metadata["tokenizer.ggml.tokens"].length, vocab_size);
    // Llama 3's words, where merges decide alone: SmolLM3.
    const split = {
      type: "Split",
      pattern: { Regex: LLAMA_3 },
      behavior: "Isolated",
      invert: false,
    };
    const bytewise = {
      type: "ByteLevel",
      add_prefix_space: false,
      trim_offsets: true,
      use_regex: false,
    };
    const merged = changed({
      pre_tokenizer: { type: "Sequence", pretokenizers: [split, bytewise] },
    });
    const { [FILE]: smaug } = await save(merged);
    equal(readGguf(smaug).metadata["tokenizer.ggml.pre"], "smaug-bpe");
    const [here, there] = await Promise.all(
      [merged, { [FILE]: smaug }].map((from) => tinyloom.Tokenizer.fromPretrained(from)),
    );
    for (const string of ["the cat's 12345 hats\n\n  sat", "THE'LL  don't"]) {
      equal([...there.encode(string)], [...here.encode(string)], string);
    }
    const { model: own, pre_tokenizer: words } = json;
    for (const [change, word] of [
      [{ model: { ...own, type: "Unigram", vocab: [["a", 0]] } }, "Unigram"],
      [{ model: { ...own, type: "WordPiece" } }, "WordPiece"],
      [{ model: { ...own, byte_fallback: true } }, "tokenizer.model"],
      [{ model: { ...own, ignore_merges: true } }, "ignore_merges"],
      [{ model: { ...own, end_of_word_suffix: "</w>" } }, "end_of_word_suffix"],
      [{ normalizer: { type: "Lowercase" } }, "Lowercase"],
      [{ pre_tokenizer: { type: "Whitespace" } }, "Whitespace"],
      [{ pre_tokenizer: { ...words, add_prefix_space: true } }, "add_prefix_space"],
      [{ post_processor: { type: "BertProcessing" } }, "BertProcessing"],
    ]) {
      await refuses("invalid-options", [word, "tokenizer: null"], () => save(changed(change)));
    }
    const { "tokenizer_config.json": _, ...without } = files;
    await refuses("invalid-options", ["eos_token"], () => save(without));
    const scores = { ...changed({ model: { ...own, byte_fallback: true } }) };
    await refuses("invalid-checkpoint", ["SentencePiece"], () =>
      save({ ...scores, "tokenizer.model": new Uint8Array([0xff, 1, 2]) }),
    );
    model.free();
    const small = await tinyloom.Model.create(runtime, { ...config, vocab_size: 100 });
    await refuses("invalid-options", ["vocab_size", "100"], () =>
      small.save({ format, tokenizer: new tinyloom.ByteTokenizer() }),
    );
    small.free();
  },
};
