// GGUF files that are read: every element type as Python's gguf has it, in the layout of transformers; frames that are
// damaged, and what tinyloom does not compute.
// reads: tests/reference/make_gguf.py tests/files/gguf
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { before, test } from "node:test";
import { root, target } from "../../scripts/lib.mjs";
import { referencePython } from "../../scripts/reference.mjs";
import { openFile } from "../api/bodies/kit.mjs";
import { GgufBytes } from "./gguf/write.mjs";

const { Blocks, elementOf } = await import("../../pkg/dist/gguf/elements.js");
const { openSource } = await import("../../pkg/dist/file-source.js");
const { openGguf } = await import("../../pkg/dist/gguf/index.js");
const { fittedFactors } = await import("../../pkg/dist/gguf/rope-factors.js");
const { llama3Factors } = await import("../../pkg/dist/gguf/rope.js");

const folder = join(target, "gguf-types");
let file;

before(async () => {
  const script = join(root, "tests", "reference", "make_gguf.py");
  const { status, stderr } = spawnSync(await referencePython(), [script, folder], {
    encoding: "utf8",
  });
  assert.equal(status, 0, stderr);
  file = new Uint8Array(readFileSync(join(folder, "model.gguf")));
});

/** A file that notes what is read of it, in order. */
function partOf(bytes, name = "model.gguf") {
  const reads = [];
  const read = async (begin, end) => {
    reads.push([begin, end]);
    return bytes.subarray(begin, end);
  };
  return { name, place: name, remote: false, size: bytes.length, read, reads };
}

async function whole(part, step = part.size) {
  const bytes = new Uint8Array(part.size);
  for (let at = 0; at < part.size; at += step) {
    bytes.set(await part.read(at, Math.min(part.size, at + step)), at);
  }
  return bytes;
}

/** The values of a safetensors file's tensors in f32. */
function valuesOf(bytes) {
  const { header, data } = openFile(bytes);
  const entries = Object.entries(header).map(([name, { dtype, shape, data_offsets }]) => {
    const own = data.slice(...data_offsets);
    const words = (length, word) => new Float32Array(Uint32Array.from({ length }, word).buffer);
    const halves = new Uint16Array(own.buffer);
    const values = {
      F32: () => new Float32Array(own.buffer),
      BF16: () => words(halves.length, (_, at) => halves[at] << 16),
      F16: () => Float32Array.from(halves, ofHalf),
    }[dtype]();
    return [name, { shape, values }];
  });
  return Object.fromEntries(entries);
}

function ofHalf(bits) {
  const [exponent, fraction] = [(bits >> 10) & 31, bits & 1023];
  const size = exponent === 0 ? fraction * 2 ** -24 : (1 + fraction / 1024) * 2 ** (exponent - 15);
  return bits & 0x8000 ? -size : size;
}

const textIn = async (source, name) => {
  const part = await source.find(name);
  return part && new TextDecoder().decode(await part.read(0, part.size));
};

test("every type is what Python's gguf makes of it, to the bit", async (t) => {
  const types = JSON.parse(readFileSync(join(folder, "types.json"), "utf8"));
  const expected = valuesOf(new Uint8Array(readFileSync(join(folder, "model.safetensors"))));
  assert.equal(new Set(Object.values(types)).size, 13);
  // In one read, in pieces of the loader, and in pieces that cut rows and elements.
  for (const step of [undefined, 4 << 20, 4096, 1234]) {
    const source = await openGguf(partOf(file));
    const found = valuesOf(await whole(await source.find("model.safetensors"), step));
    assert.deepEqual(Object.keys(found).sort(), Object.keys(expected).sort());
    for (const [name, { shape, values }] of Object.entries(expected)) {
      assert.deepEqual(found[name].shape, shape, name);
      assert.deepEqual(found[name].values, values, `${name} of ${types[name] ?? "F32"}`);
    }
  }
  t.diagnostic(
    `${Object.keys(expected).length} tensors of ${Object.keys(types).length} types equal`,
  );
});

test("blocks stand for the same values", async () => {
  const source = await openGguf(partOf(file));
  const part = await source.find("model.safetensors");
  const { header } = openFile(await whole(part));
  const length = part.size - Math.max(...Object.values(header).map((one) => one.data_offsets[1]));
  const types = JSON.parse(readFileSync(join(folder, "types.json"), "utf8"));
  const plain = [];
  for (const [name, { data_offsets }] of Object.entries(header)) {
    const [begin, end] = data_offsets.map((at) => at + length);
    const values = new Float32Array((await part.read(begin, end)).slice().buffer);
    const middle = begin + 4 * 256 * 3; // three rows
    for (const [from, to] of [
      [begin, middle],
      [middle, end],
    ]) {
      if (to > end) continue;
      const blocks = await part.blocks(from, to);
      if (!blocks) continue;
      plain.push(types[name]);
      const element = elementOf("blocks", name, blocks.type);
      const decoded = new Float32Array((to - from) / 4);
      element.decode(new Blocks(blocks.bytes, element), decoded);
      const same = values.subarray((from - begin) / 4, (to - begin) / 4);
      assert.deepEqual(decoded, same, name);
    }
  }
  assert.deepEqual([...new Set(plain)].sort(), ["Q4_0", "Q5_0", "Q8_0"]);
});

test("a file is read once, forward, and never whole", async () => {
  const given = partOf(file);
  const source = await openGguf(given);
  const part = await source.find("model.safetensors");
  const frame = given.reads.length;
  await whole(part, 4096);
  let at = 0;
  for (const [begin, end] of given.reads.slice(frame)) {
    assert.ok(begin >= at, `byte ${begin} is read after ${at}`);
    assert.ok(end - begin < 1 << 17, `${end - begin} bytes at once`);
    at = end;
  }
});

test("of a server's file each byte is asked for once", async () => {
  const asked = [];
  const server = createServer((request, response) => {
    const [, from, to] = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range) ?? [];
    const [begin, end] = [Number(from), to ? Number(to) + 1 : file.length];
    asked.push(`${request.url} ${begin}`);
    const content_range = `bytes ${begin}-${end - 1}/${file.length}`;
    response.writeHead(206, { "content-range": content_range, "content-length": end - begin });
    response.end(file.subarray(begin, end));
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  try {
    const url = `http://127.0.0.1:${server.address().port}/org/all%20types.gguf?download=true`;
    const source = openSource("test", url, {});
    assert.equal(source.place("config.json").split("?")[0].endsWith("/org/all%20types.gguf"), true);
    const part = await source.find("model.safetensors");
    const local = await (await openGguf(partOf(file))).find("model.safetensors");
    assert.deepEqual(await whole(part, 1 << 16), await whole(local));
    // The first bytes, the rest of the frame, and the data in one stream.
    assert.ok(asked.length <= 3, asked.join());
    assert.ok(asked.every((one) => one.startsWith("/org/all%20types.gguf?download=true ")));
    part.rest();
  } finally {
    server.closeAllConnections();
    server.close();
  }
});

test("the config says what the metadata says", async () => {
  const source = await openGguf(partOf(file));
  const config = JSON.parse(await textIn(source, "config.json"));
  assert.deepEqual(config, {
    model_type: "llama",
    vocab_size: 64,
    hidden_size: 256,
    intermediate_size: 512,
    num_hidden_layers: 2,
    num_attention_heads: 4,
    num_key_value_heads: 2,
    head_dim: 64,
    max_position_embeddings: 128,
    rms_norm_eps: 1e-5,
    tie_word_embeddings: false,
    eos_token_id: 5,
    pad_token_id: null,
    rope_theta: 50_000,
    rope_parameters: { rope_type: "default", rope_theta: 50_000 },
    _name_or_path: "Every type",
  });
  assert.deepEqual(JSON.parse(await textIn(source, "generation_config.json")), {
    eos_token_id: [5, 7],
  });
  assert.equal(await source.find("tokenizer.json"), undefined, "a tokenizer of the model none");
  assert.equal(await source.find("optimizer.safetensors"), undefined);
});

test("Llama 3's scaling is found in the divisors of angles", () => {
  for (const [factor, low, high, original, theta, dim] of [
    [8, 1, 4, 8192, 5e5, 128],
    [32, 1, 4, 8192, 5e5, 64],
    [4, 1, 4, 64, 500, 16],
    [8, 1, 2.5, 4096, 1e4, 96],
    [16, 2, 8, 8192, 1e6, 128],
  ]) {
    const rope = {
      factor,
      low_freq_factor: low,
      high_freq_factor: high,
      original_max_position_embeddings: original,
    };
    const found = fittedFactors(llama3Factors(rope, theta, dim), theta, dim);
    // The three can be multiplied together.
    assert.equal(found.factor, factor);
    assert.ok(Math.abs(found.high_freq_factor * low - high) < 1e-3 * high, JSON.stringify(found));
    assert.ok(
      Math.abs(found.original_max_position_embeddings * low - original) <= 1 + original * 1e-3,
    );
  }
  const odd = Float32Array.from({ length: 32 }, (_, at) => 1 + (at % 3));
  assert.equal(fittedFactors(odd, 1e4, 64), undefined);
});

/** A small file of an architecture, with some metadata changed and more tensors. */
function small({ metadata = {}, tensors = [], version = 3, architecture = "llama" } = {}) {
  const keys = {
    "general.architecture": architecture,
    "llama.context_length": 32,
    "llama.embedding_length": 8,
    "llama.block_count": 1,
    "llama.feed_forward_length": 8,
    "llama.attention.head_count": 2,
    "llama.attention.layer_norm_rms_epsilon": { f32: 1e-5 },
    ...metadata,
  };
  const embedding = { name: "token_embd.weight", shape: [4, 8], type: 0 };
  return new GgufBytes(version).file(keys, [embedding, ...tensors]);
}

const refusal = async (bytes, name = "config.json") => {
  try {
    const source = await openGguf(partOf(bytes));
    await source.find(name);
  } catch (error) {
    return `${error.code}: ${error.message}`;
  }
  return "nothing is refused";
};

test("what a file lacks, and what tinyloom lacks, is refused by name", async () => {
  assert.equal(await refusal(small()), "nothing is refused");
  assert.equal(await refusal(small({ version: 2 })), "nothing is refused");
  const factors = ["long", "short"].map((which) => ({
    name: `rope_factors_${which}.weight`,
    shape: [2],
    type: 0,
    values: [1, 2],
  }));
  const cases = [
    [{ metadata: { "llama.block_count": undefined } }, /llama\.block_count/],
    [{ metadata: { "llama.feed_forward_length": [8, 16] } }, /feed_forward_length.*one number/],
    [{ metadata: { "llama.expert_count": 8 } }, /llama\.expert_count.*8/],
    [{ metadata: { "llama.attention.value_length": 8 } }, /value_length is 8/],
    [{ metadata: { "llama.rope.dimension_count": 2 } }, /rope\.dimension_count is 2/],
    [{ metadata: { "llama.rope.scaling.type": "longrope" } }, /not both rope_factors_long/],
    [
      { tensors: [{ name: "rope_factors_short.weight", shape: [2], type: 0 }] },
      /not both rope_factors_long\.weight and rope_factors_short\.weight/,
    ],
    [
      { metadata: { "llama.rope.scaling.type": "yarn" }, tensors: factors },
      /has rope_factors_long\.weight, and llama\.rope\.scaling\.type is yarn/,
    ],
    [{ metadata: { "llama.rope.scaling.type": "su" } }, /scaling\.type is "su"; none, linear/],
    [{ tensors: factors }, /nothing/],
    [{ metadata: { "llama.logit_scale": { f32: 0.5 } } }, /llama\.logit_scale/],
    [{ architecture: "mamba" }, /general\.architecture is "mamba"; llama, qwen2.*gemma3/],
    [{ metadata: { "split.count": 3 } }, /one of 3 parts.*--merge/],
    [{ version: 1 }, /version 1; versions 2 and 3/],
    [{ tensors: [{ name: "blk.0.attn_q.bias", shape: [8], type: 0 }] }, /nothing/],
    [{ tensors: [{ name: "blk.0.ssm_a.weight", shape: [8], type: 0 }] }, /blk\.0\.ssm_a\.weight/],
    [
      { tensors: [{ name: "output.weight", shape: [4, 8], type: 21 }] },
      /output\.weight.*IQ3_S.*Q4_K/,
    ],
    [{ tensors: [{ name: "output.weight", shape: [4, 8], type: 2 }] }, /no whole blocks of Q4_0/],
  ];
  for (const [given, expected] of cases) assert.match(await refusal(small(given)), expected);
  assert.equal(
    await refusal(small({ metadata: { "llama.expert_count": 0 } })),
    "nothing is refused",
  );
  const tokens = { "tokenizer.ggml.tokens": ["a"], "tokenizer.ggml.model": "gpt2" };
  for (const [metadata, expected] of [
    [{ ...tokens, "tokenizer.ggml.pre": "tekken" }, /tokenizer\.ggml\.pre is "tekken"/],
    [tokens, /tokenizer\.ggml\.pre is undefined/],
    [{ ...tokens, "tokenizer.ggml.pre": "gpt-2" }, /lacks.*tokenizer\.ggml\.merges/],
    [{ "tokenizer.ggml.model": "t5" }, /tokenizer\.ggml\.model is "t5"; gpt2 and llama/],
    [{ ...tokens, "tokenizer.ggml.model": "llama" }, /tokenizer\.ggml\.scores 0/],
  ]) {
    assert.match(await refusal(small({ metadata }), "tokenizer.json"), expected);
  }
});

test("a damaged frame is refused, wherever it ends", async () => {
  const bytes = small({ metadata: { "tokenizer.ggml.tokens": ["one", "two"] } });
  for (let length = 0; length < bytes.length; length += 7) {
    assert.match(await refusal(bytes.slice(0, length)), /^invalid-checkpoint: model\.gguf/);
  }
  let refused = 0;
  for (let at = 0; at < bytes.length - 4 * 32; at++) {
    for (const value of [0xff, 0x80, 0x00]) {
      const other = bytes.slice();
      other[at] = value;
      const answer = await refusal(other);
      assert.match(answer, /^(invalid-checkpoint|invalid-config): |^nothing is refused$/);
      refused += answer === "nothing is refused" ? 0 : 1;
    }
  }
  assert.ok(refused > 200, `${refused} of the damaged files are refused`);
  assert.match(await refusal(new TextEncoder().encode("<!doctype html>".repeat(9))), /GGUF/);
});
