// Saving and loading: the way there and back, other dtypes, shards, URLs, hostile files.
import { close, equal, ok, refuses, sameBytes } from "../../api/bodies/assert.mjs";
import { concat, config, convert, makeFile, openFile } from "../../api/bodies/kit.mjs";
import { readReference } from "../../api/bodies/reference.mjs";

const encode = (value) => new TextEncoder().encode(JSON.stringify(value));

async function saved({ tinyloom, runtime }) {
  const model = await tinyloom.Model.create(runtime, config, { seed: 5 });
  const files = await model.save();
  const logits = await model.logits([10, 20, 30]);
  model.free();
  return { files, logits };
}

async function logitsOf({ tinyloom, runtime }, files, options) {
  const model = await tinyloom.Model.fromPretrained(runtime, files, options);
  const logits = await model.logits([10, 20, 30]);
  model.free();
  return logits;
}

/** The same weights in two shards and an index. */
function shards(files) {
  const { header, data } = openFile(files["model.safetensors"]);
  const names = Object.keys(header).filter((name) => name !== "__metadata__");
  const parts = {};
  const weight_map = {};
  const middle = names.length >> 1;
  for (const [part, of] of [names.slice(0, middle), names.slice(middle)].entries()) {
    const file = `model-0000${part + 1}-of-00002.safetensors`;
    const made = {};
    const pieces = [];
    let offset = 0;
    for (const name of of) {
      const [begin, end] = header[name].data_offsets;
      pieces.push(data.subarray(begin, end));
      made[name] = { ...header[name], data_offsets: [offset, offset + end - begin] };
      offset += end - begin;
      weight_map[name] = file;
    }
    parts[file] = makeFile(made, concat(pieces));
  }
  const index = encode({ metadata: {}, weight_map });
  return { "config.json": files["config.json"], "model.safetensors.index.json": index, ...parts };
}

/** The checkpoint with a buffer that older versions of transformers have stored beside the weights. */
function withTable(bytes) {
  const { header, data } = openFile(bytes);
  const name = "model.layers.0.self_attn.rotary_emb.inv_freq";
  const table = new Float32Array([1, 0.1, 0.01]);
  const data_offsets = [data.length, data.length + table.byteLength];
  const entry = { dtype: "F32", shape: [table.length], data_offsets };
  return makeFile({ ...header, [name]: entry }, concat([data, new Uint8Array(table.buffer)]));
}

/** Words of F32 by tensor. */
function wordsOf(bytes) {
  const { header, data } = openFile(bytes);
  const names = Object.keys(header).filter((name) => name !== "__metadata__");
  const words = (name) => new Uint32Array(data.slice(...header[name].data_offsets).buffer);
  return Object.fromEntries(names.map((name) => [name, words(name)]));
}

const EMBEDDING = "model.embed_tokens.weight";

/** The files of a tied model whose embedding, 64 wide, has these words of 16 bits, and whose other weights are 0. */
async function withWords({ tinyloom, runtime }, dtype, words) {
  const sizes = { ...config, vocab_size: words.length / config.hidden_size };
  const model = await tinyloom.Model.create(runtime, sizes, { seed: 1 });
  const files = await model.save();
  model.free();
  const { header, data } = openFile(convert(files["model.safetensors"], dtype));
  data.fill(0);
  data.set(new Uint8Array(words.buffer), header[EMBEDDING].data_offsets[0]);
  return { ...files, "model.safetensors": makeFile(header, data) };
}

/** Where this body's cases run: see hosts.mjs. */
export const place = {
  whole: ["node"],
  why: "bytes are read in the module; Blobs, URLs and signals are the host's",
  smoke: [
    "what is saved loads again, from bytes and from Blobs",
    "every finite number of 16 bits is read to the bit, and no other",
    "loading stops at the signal",
  ],
};

export const cases = {
  async "what is saved loads again, from bytes and from Blobs"(host) {
    const { files, logits } = await saved(host);
    sameBytes(await logitsOf(host, files), logits, "logits from bytes");
    const blobs = Object.fromEntries(
      Object.entries(files).map(([name, one]) => [name, new Blob([one])]),
    );
    const stages = new Set();
    let last;
    const onProgress = (progress) => {
      stages.add(progress.stage);
      last = progress;
    };
    sameBytes(await logitsOf(host, blobs, { onProgress }), logits, "logits from Blobs");
    ok(
      stages.has("upload") && last.loaded === last.total && last.total > 0,
      "progress reaches its total",
    );
    const buffers = Object.fromEntries(
      Object.entries(files).map(([name, one]) => [name, one.buffer]),
    );
    sameBytes(await logitsOf(host, buffers), logits, "logits from ArrayBuffers");
    const names = Object.keys(openFile(files["model.safetensors"]).header);
    ok(names.includes("model.embed_tokens.weight"), "tensors have transformers' names");
    ok(!names.includes("lm_head.weight"), "a tied head is not saved twice");
    equal(JSON.parse(new TextDecoder().decode(files["config.json"])).hidden_size, 64);
  },

  async "shards, F16 and BF16"(host) {
    const { files, logits } = await saved(host);
    sameBytes(await logitsOf(host, shards(files)), logits, "logits from shards");
    for (const [dtype, tolerance] of [
      ["BF16", 2e-2],
      ["F16", 4e-3],
    ]) {
      const half = { ...files, "model.safetensors": convert(files["model.safetensors"], dtype) };
      const other = await logitsOf(host, half);
      for (const [index, value] of logits.entries()) close(other[index], value, tolerance, dtype);
    }
  },

  async "every finite number of 16 bits is read to the bit, and no other"(host) {
    const { fromPretrained } = host.tinyloom.Model;
    for (const [dtype, fraction, bias] of [
      ["F16", 10, 15],
      ["BF16", 7, 127],
    ]) {
      const largest = 2 * bias + 1; // the exponent of infinities and NaN
      const exponentOf = (word) => (word >>> fraction) & largest;
      const all = Uint16Array.from({ length: 1 << 16 }, (_, word) => word);
      const words = all.filter((word) => exponentOf(word) < largest);
      const files = await withWords(host, dtype, words);
      const model = await fromPretrained(host.runtime, files);
      const expected = Float32Array.from(words, (word) => {
        const [exponent, rest] = [exponentOf(word), (word & ((1 << fraction) - 1)) / 2 ** fraction];
        const magnitude = (rest + Math.sign(exponent)) * 2 ** (Math.max(exponent, 1) - bias);
        return word >>> 15 ? -magnitude : magnitude;
      });
      sameBytes(await model.parameter(EMBEDDING), expected, dtype);
      model.free();
      const few = new Uint16Array(32 * config.hidden_size);
      for (let place = 0; place < 8; place++) {
        const other = few.slice();
        other[1000 + place] = largest << fraction;
        const wrong = await withWords(host, dtype, other);
        await refuses("invalid-checkpoint", [EMBEDDING, `[15, ${40 + place}]`, "finite"], () =>
          fromPretrained(host.runtime, wrong),
        );
      }
    }
  },

  async "each family as hubs store it: BF16 and F16, in shards, with a stored RoPE table"(host) {
    for (const name of ["llama", "llama-tied", "mistral", "qwen2", "qwen3"]) {
      const weights = await readReference(`${name}/model.safetensors`);
      const expected = wordsOf(weights);
      for (const [dtype, config, kept] of [
        ["BF16", "config.v4.json", 16],
        ["F16", "config.json", 13],
      ]) {
        const files = shards({
          "config.json": await readReference(`${name}/${config}`),
          "model.safetensors": withTable(convert(weights, dtype)),
        });
        const model = await host.tinyloom.Model.fromPretrained(host.runtime, files);
        const found = wordsOf((await model.save())["model.safetensors"]);
        model.free();
        equal(Object.keys(found).sort(), Object.keys(expected).sort(), `tensors of ${name}`);
        for (const [tensor, words] of Object.entries(expected)) {
          // What `convert` cuts off is zero; numbers below F16's smallest normal one are, too.
          const small = (word) => dtype === "F16" && ((word >>> 23) & 0xff) <= 112;
          const cut = words.map((word) =>
            small(word) ? word & 0x80000000 : (word >>> kept) << kept,
          );
          sameBytes(found[tensor], cut, `${dtype} ${tensor} of ${name}`);
        }
      }
    }
  },

  async "files that lie about themselves"(host) {
    const { files, logits } = await saved(host);
    const whole = files["model.safetensors"];
    const { header, data } = openFile(whole);
    const first = "model.embed_tokens.weight";
    const load = (bytes) => () => logitsOf(host, { ...files, "model.safetensors": bytes });
    const wrong = (words, bytes) => refuses("invalid-checkpoint", words, load(bytes));
    const changed = (change) =>
      makeFile({ ...header, [first]: { ...header[first], ...change } }, data);
    await wrong("truncated", whole.subarray(0, 5));
    await wrong("truncated", whole.subarray(0, 100));
    await wrong("model.safetensors", whole.subarray(0, whole.length - 4));
    const far = whole.slice();
    new DataView(far.buffer).setBigUint64(0, 2n ** 63n, true);
    await wrong("header", far);
    await wrong("model.safetensors", makeFile("{ not json", data));
    await wrong("model.safetensors", makeFile("[]", data));
    await wrong(first, changed({ dtype: "I64" }));
    await wrong(first, changed({ shape: [64, 256] }));
    await wrong(first, changed({ data_offsets: [0, 2 ** 40] }));
    await wrong(first, changed({ data_offsets: [8, 4] }));
    await wrong("model.safetensors", changed({ data_offsets: [-4, 65_532] }));
    const other = Object.keys(header).find((name) => name.includes("mlp.up_proj"));
    const same = Object.keys(header).find((name) => name.includes("mlp.gate_proj"));
    const overlap = {
      ...header,
      [other]: { ...header[other], data_offsets: header[same].data_offsets },
    };
    await wrong("model.safetensors", makeFile(overlap, data));
    const { [first]: _, ...fewer } = header;
    await wrong("model.", makeFile(fewer, data));
    sameBytes(await logitsOf(host, files), logits, "the runtime stays usable");
  },

  async "files that are missing or of the wrong kind"(host) {
    const { files } = await saved(host);
    const { "config.json": configFile, "model.safetensors": weights } = files;
    const load = (source) => () => host.tinyloom.Model.fromPretrained(host.runtime, source);
    const wrong = (words, source) => refuses("invalid-checkpoint", words, load(source));
    await wrong("config.json", { "model.safetensors": weights });
    await wrong("model.safetensors.index.json", { "config.json": configFile });
    const index = (value) => ({ "config.json": configFile, "model.safetensors.index.json": value });
    await wrong("JSON", index(new TextEncoder().encode("{")));
    await wrong("weight_map", index(encode({})));
    await wrong("../secret", index(encode({ weight_map: { a: "../secret.safetensors" } })));
    await wrong("one.safetensors", index(encode({ weight_map: { a: "one.safetensors" } })));
    await refuses(
      "invalid-options",
      "config.json",
      load({ "config.json": 5, "model.safetensors": weights }),
    );
    await refuses("invalid-options", "base URL", load(5));
    await refuses("invalid-options", "URL", load("http://"));
    await refuses(
      "invalid-config",
      [],
      load({ ...files, "config.json": new TextEncoder().encode("{") }),
    );
    await refuses(
      "invalid-config",
      "model_type",
      load({ ...files, "config.json": encode({ ...config, model_type: "bert" }) }),
    );
  },

  async "loading stops at the signal"(host) {
    const { files } = await saved(host);
    const controller = new AbortController();
    const options = { signal: controller.signal, onProgress: () => controller.abort() };
    await refuses("aborted", [], () => logitsOf(host, files, options));
    await refuses("aborted", [], () => logitsOf(host, files, { signal: AbortSignal.abort() }));
    const model = await host.tinyloom.Model.fromPretrained(host.runtime, files);
    await refuses("aborted", [], () => model.save({ signal: AbortSignal.abort() }));
    sameBytes((await model.save())["model.safetensors"], files["model.safetensors"]);
    model.free();
  },
};
