// readConfig: a checkpoint's config, of a folder and of a GGUF file, without its weights.
// reads: tests/files/gguf/write.mjs
import assert from "node:assert/strict";
import { test } from "node:test";
import { estimate, readConfig } from "tinyloom";
import { GgufBytes } from "./gguf/write.mjs";

const CONFIG = {
  model_type: "llama",
  vocab_size: 96,
  hidden_size: 64,
  intermediate_size: 128,
  num_hidden_layers: 1,
  num_attention_heads: 2,
  max_position_embeddings: 64,
};
const KEYS = {
  "general.architecture": "llama",
  "llama.context_length": 64,
  "llama.embedding_length": 64,
  "llama.block_count": 1,
  "llama.feed_forward_length": 128,
  "llama.attention.head_count": 2,
  "llama.attention.layer_norm_rms_epsilon": { f32: 1e-5 },
};
/** Numbers of a tensor that makes the file much longer than its beginning. */
const LONG = 2_000_000;
const encode = (text) => new TextEncoder().encode(text);

/** A file of llama.cpp's whose weights take megabytes. */
function gguf() {
  const words = LONG / 64;
  const embedding = { name: "token_embd.weight", shape: [words, 64], type: 0, data: [] };
  return Buffer.concat([new GgufBytes().file(KEYS, [embedding]), Buffer.alloc(4 * LONG)]);
}

const BASE = "https://checkpoints.example/";

/** A `fetch` that answers to Range with these files, and counts what is read of them. */
function served(files) {
  const sent = {};
  const fetch = async (url, { headers, signal } = {}) => {
    signal?.throwIfAborted();
    const name = url.slice(BASE.length);
    const bytes = files[name];
    sent[name] ??= 0;
    if (!bytes) return new Response("no", { status: 404 });
    const [, from, to] = /^bytes=(\d+)-(\d*)$/.exec(new Headers(headers).get("range") ?? "") ?? [];
    const begin = Number(from ?? 0);
    const end = Math.min(bytes.length, to ? Number(to) + 1 : bytes.length);
    let at = begin;
    const pull = (controller) => {
      const piece = bytes.subarray(at, Math.min(end, at + 16_384));
      at += piece.length;
      sent[name] += piece.length;
      if (piece.length > 0) controller.enqueue(Uint8Array.from(piece));
      else controller.close();
    };
    const body = new ReadableStream({ pull }, { highWaterMark: 0 });
    const length = { "content-length": String(end - begin) };
    const range = from && { "content-range": `bytes ${begin}-${end - 1}/${bytes.length}` };
    return new Response(body, { status: from ? 206 : 200, headers: { ...length, ...range } });
  };
  return { fetch, sent };
}

test("a folder's config is read, and nothing else of it", async () => {
  const files = { "config.json": Buffer.from(JSON.stringify(CONFIG)) };
  assert.deepEqual(await readConfig(files), CONFIG);
  const { fetch, sent } = served({ ...files, "model.safetensors": Buffer.alloc(100) });
  assert.deepEqual(await readConfig(BASE, { fetch }), CONFIG);
  assert.deepEqual(Object.keys(sent), ["config.json"]);
});

test("of a GGUF file on the web only the beginning is fetched", async () => {
  const file = gguf();
  const { fetch, sent } = served({ "a.gguf": file });
  for (const source of [`${BASE}a.gguf`, new Blob([file]), { "a.gguf": file }]) {
    const config = await readConfig(source, { fetch });
    const { model_type: type, vocab_size: words, num_hidden_layers: layers } = config;
    assert.deepEqual([type, words, layers], ["llama", LONG / 64, 1]);
    assert.equal((await estimate(config)).bytes.weights > 4 * LONG, true);
  }
  assert.ok(sent["a.gguf"] < file.length / 2, `${sent["a.gguf"]} of ${file.length} bytes`);
});

test("what is no config is refused by its place", async () => {
  const { fetch } = served({ "list/config.json": Buffer.from("[1]") });
  const refuses = (source, code, message, options) =>
    assert.rejects(readConfig(source, { fetch, ...options }), (error) => {
      assert.equal(error.code, code, error.message);
      assert.match(error.message, message);
      return true;
    });
  await refuses({ "config.json": encode("{") }, "invalid-config", /^config\.json is not JSON: /);
  await refuses(`${BASE}list`, "invalid-config", /list\/config\.json is .*no object of fields/);
  await refuses(`${BASE}none/`, "invalid-checkpoint", /none\/config\.json is missing/);
  await refuses("hf:name", "invalid-options", /^readConfig: "hf:name" is no repository/);
  await refuses(7, "invalid-options", /^readConfig takes a base URL/);
  await refuses(BASE, "invalid-options", /^readConfig has no option "weights"/, {
    weights: "int4",
  });
  await refuses(BASE, "aborted", /./, { signal: AbortSignal.abort() });
});
