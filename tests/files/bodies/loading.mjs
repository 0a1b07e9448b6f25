// Loading in its order: config, headers, allocation, tensors in pieces; from URLs by Range or without.
import { equal, ok, refuses, sameFiles } from "../../api/bodies/assert.mjs";
import { batch, config, convert, makeFile, openFile } from "../../api/bodies/kit.mjs";

const BASE = "https://checkpoints.example/tiny/";
const encode = (value) => new TextEncoder().encode(JSON.stringify(value));

/**
 * Runs work with `fetch` answered from files under BASE, and says what was asked for.
 *
 * @param server - `{ ranges, length, hidden }`: whether it answers to Range, states lengths, and hides
 *   Content-Range as a server of another origin may.
 * @returns `[{ name, range, sent, open }]`: `sent` counts the bytes that were read of the answer's body,
 *   `open` the bodies that were open when this was asked for.
 */
async function served(files, { ranges = true, length = true, hidden = false }, work) {
  const asked = [];
  let open = 0;
  const own = globalThis.fetch;
  globalThis.fetch = async (url, options = {}) => {
    const name = String(url).replace(BASE, "");
    const entry = { name, range: new Headers(options.headers).get("range"), sent: 0, open };
    asked.push(entry);
    if (options.signal?.aborted) throw options.signal.reason;
    const content = files[name];
    if (!content) return new Response("no", { status: 404 });
    const [, from, to] = (ranges && /^bytes=(\d+)-(\d*)$/.exec(entry.range ?? "")) || [];
    const begin = Number(from ?? 0);
    const end = Math.min(content.length, to ? Number(to) + 1 : content.length);
    const headers = new Headers();
    if (length) headers.set("content-length", end - begin);
    if (from !== undefined && !hidden)
      headers.set("content-range", `bytes ${begin}-${end - 1}/${content.length}`);
    let at = begin;
    open += 1;
    const body = new ReadableStream(
      {
        pull(controller) {
          const piece = content.slice(at, Math.min(end, at + 10_007));
          at += piece.length;
          entry.sent += piece.length;
          if (piece.length > 0) return controller.enqueue(piece);
          controller.close();
          open -= 1;
        },
        cancel() {
          open -= 1;
        },
      },
      { highWaterMark: 0 },
    );
    return new Response(body, { status: from === undefined ? 200 : 206, headers });
  };
  try {
    await work(asked);
  } finally {
    globalThis.fetch = own;
  }
  return asked;
}

/** A model of some megabytes, so that its tensors come in several pieces. */
const wide = { ...config, hidden_size: 512, vocab_size: 3000, num_hidden_layers: 1 };

async function savedModel({ tinyloom, runtime }, shape = config) {
  const model = await tinyloom.Model.create(runtime, shape, { seed: 11 });
  const files = await model.save();
  model.free();
  return files;
}

/** The header of the model's file in F32, and how many bytes of data follow. */
function headerOf(shape) {
  const { hidden_size: hidden, intermediate_size: feed, vocab_size: words } = shape;
  const heads = hidden / shape.num_attention_heads;
  const keys = heads * shape.num_key_value_heads;
  const header = {};
  let offset = 0;
  const add = (name, ...shape) => {
    const begin = offset;
    offset += 4 * shape.reduce((product, size) => product * size, 1);
    header[`model.${name}.weight`] = { dtype: "F32", shape, data_offsets: [begin, offset] };
  };
  add("embed_tokens", words, hidden);
  for (let layer = 0; layer < shape.num_hidden_layers; layer++) {
    const at = (name) => `layers.${layer}.${name}`;
    add(at("input_layernorm"), hidden);
    add(at("self_attn.q_proj"), hidden, hidden);
    add(at("self_attn.k_proj"), keys, hidden);
    add(at("self_attn.v_proj"), keys, hidden);
    add(at("self_attn.o_proj"), hidden, hidden);
    add(at("post_attention_layernorm"), hidden);
    add(at("mlp.gate_proj"), feed, hidden);
    add(at("mlp.up_proj"), feed, hidden);
    add(at("mlp.down_proj"), hidden, feed);
  }
  add("norm", hidden);
  return [header, offset];
}

const bytesOf = (asked, name) =>
  asked.filter((one) => one.name === name).reduce((sum, { sent }) => sum + sent, 0);

/** Where this body's cases run: see hosts.mjs. */
export const place = {
  whole: ["node"],
  why: "the order of requests and pieces is decided in TypeScript; fetch and its streams are the host's",
  smoke: [
    "from servers with and without Range, lengths and Content-Range",
    "a run resumes over HTTP, in one progress",
    "a download stops at the signal",
    "bytes that go away while they are read are reported",
  ],
};

export const cases = {
  async "a config that is refused costs no weights"(host) {
    const { Model, Trainer } = host.tinyloom;
    const files = {
      ...(await savedModel(host)),
      "config.json": encode({ model_type: "gptj", n_ctx: 1024, n_embd: 768 }),
      "trainer_state.json": encode({}),
    };
    const asked = await served(files, {}, async () => {
      await refuses("invalid-config", ["model_type", "gptj"], () =>
        Model.fromPretrained(host.runtime, BASE),
      );
      await refuses("invalid-config", ["model_type", "gptj"], () =>
        Trainer.resume(host.runtime, BASE),
      );
    });
    const names = new Set(asked.map(({ name }) => name));
    equal([...names].sort(), ["config.json", "trainer_state.json"], "files asked for");
  },

  async "a header that is refused costs no tensors and no memory"(host) {
    const files = await savedModel(host, wide);
    const { header, data } = openFile(files["model.safetensors"]);
    const { "model.norm.weight": _, __metadata__, ...fewer } = header; // without the header's checksum
    const last = new Uint8Array(data.length);
    const short = makeFile(fewer, last.subarray(0, last.length - 4 * wide.hidden_size));
    const before = host.runtime._counters().buffers;
    const asked = await served({ ...files, "model.safetensors": short }, {}, () =>
      refuses("invalid-checkpoint", "model.norm.weight", () =>
        host.tinyloom.Model.fromPretrained(host.runtime, BASE),
      ),
    );
    equal(host.runtime._counters().buffers, before, "buffers made");
    const sent = bytesOf(asked, "model.safetensors");
    ok(sent <= 150_000, `${sent} bytes were read of ${short.length}`);
    ok(
      asked.every(({ range }) => range?.startsWith("bytes=")),
      "every request has a Range",
    );
  },

  async "no memory for the model shows before a tensor is read"(host) {
    if (!host.runtime.capabilities.software) return "this adapter's memory is its own";
    // Nine billion weights: more than an adapter on the CPU may take.
    const shape = {
      ...config,
      hidden_size: 8192,
      intermediate_size: 28_672,
      num_attention_heads: 64,
      num_hidden_layers: 12,
      head_dim: 128,
    };
    const [header, size] = headerOf(shape);
    const head = makeFile(header);
    // A Blob that has the right size, and nothing to read beyond its header.
    const weights = new Blob([head]);
    Object.defineProperty(weights, "size", { value: head.length + size });
    let furthest = 0;
    const slice = weights.slice.bind(weights);
    weights.slice = (begin, end) => {
      furthest = Math.max(furthest, end);
      return slice(begin, end);
    };
    const source = { "config.json": encode(shape), "model.safetensors": weights };
    await refuses("out-of-memory", "GB", () =>
      host.tinyloom.Model.fromPretrained(host.runtime, source),
    );
    equal(furthest, 0, "bytes read: its config.json alone says that it cannot fit");
  },

  async "from servers with and without Range, lengths and Content-Range"(host) {
    const files = await savedModel(host, wide);
    ok(files["model.safetensors"].length > 8 << 20, "several pieces");
    for (const server of [
      {},
      { ranges: false },
      { hidden: true },
      { ranges: false, length: false },
    ]) {
      const stages = new Set();
      let last = {};
      const onProgress = (progress) => {
        ok(progress.stage !== last.stage || progress.loaded >= last.loaded, "progress goes on");
        stages.add(progress.stage);
        last = progress;
      };
      let model;
      await served(files, server, async () => {
        model = await host.tinyloom.Model.fromPretrained(host.runtime, BASE, { onProgress });
      });
      sameFiles(await model.save(), files, JSON.stringify(server));
      equal(last.loaded, last.total, "progress ends at its total");
      if (server.length !== false)
        equal([...stages], ["download model.safetensors"], JSON.stringify(server));
      model.free();
    }
  },

  async "many shards take one connection at a time"(host) {
    const files = await savedModel(host, wide);
    const { header, data } = openFile(files["model.safetensors"]);
    const parts = { "config.json": files["config.json"] };
    const weight_map = {};
    for (const [name, entry] of Object.entries(header)) {
      if (name === "__metadata__") continue;
      const [begin, end] = entry.data_offsets;
      weight_map[name] = `${name}.safetensors`;
      const own = { [name]: { ...entry, data_offsets: [0, end - begin] } };
      parts[weight_map[name]] = makeFile(own, data.subarray(begin, end));
    }
    parts["model.safetensors.index.json"] = encode({ weight_map });
    ok(Object.keys(parts).length > 8, "shards");
    for (const server of [{}, { ranges: false }]) {
      let model;
      const asked = await served(parts, server, async () => {
        model = await host.tinyloom.Model.fromPretrained(host.runtime, BASE);
      });
      sameFiles(await model.save(), files, JSON.stringify(server));
      model.free();
      const most = Math.max(...asked.map(({ open }) => open));
      equal(most, 0, `bodies open at a request, ${JSON.stringify(server)}`);
    }
  },

  async "the module never holds a whole tensor"(host) {
    // 131 MB in one tensor, of a file that the module did not write.
    const shape = {
      ...config,
      vocab_size: 1 << 16,
      hidden_size: 500,
      num_attention_heads: 5,
      head_dim: 100,
    };
    const [header, size] = headerOf(shape);
    const source = {
      "config.json": encode(shape),
      "model.safetensors": new Blob([makeFile(header), new Uint8Array(size)]),
    };
    const before = host.runtime._counters().wasmBytes;
    const model = await host.tinyloom.Model.fromPretrained(host.runtime, source);
    const grown = host.runtime._counters().wasmBytes - before;
    model.free();
    ok(grown <= 32 << 20, `the module grew by ${grown} bytes`);
    return `the module grew by ${grown} bytes`;
  },

  async "weights that are no numbers are refused by name and place"(host) {
    const files = await savedModel(host);
    const whole = files["model.safetensors"];
    const { header, data } = openFile(whole);
    const start = whole.length - data.length;
    const name = "model.layers.1.mlp.up_proj.weight";
    const [begin] = header[name].data_offsets;
    for (const [value, text] of [
      [Number.NaN, "NaN"],
      [Number.POSITIVE_INFINITY, "inf"],
      [Number.NEGATIVE_INFINITY, "-inf"],
    ]) {
      const bytes = whole.slice();
      // Row 3, column 5 of 64 columns.
      new DataView(bytes.buffer).setFloat32(start + begin + 4 * (3 * 64 + 5), value, true);
      await refuses("invalid-checkpoint", [name, text, "[3, 5]", "model.safetensors"], () =>
        host.tinyloom.Model.fromPretrained(host.runtime, { ...files, "model.safetensors": bytes }),
      );
    }
    const halves = convert(whole, "BF16");
    const { header: small, data: packed } = openFile(halves);
    const [at] = small[name].data_offsets;
    new DataView(halves.buffer).setUint16(halves.length - packed.length + at + 2, 0x7fc0, true);
    await refuses("invalid-checkpoint", [name, "NaN", "[0, 1]"], () =>
      host.tinyloom.Model.fromPretrained(host.runtime, { ...files, "model.safetensors": halves }),
    );
  },

  async "what is missing is named with its URL"(host) {
    const files = await savedModel(host);
    const load = () => host.tinyloom.Model.fromPretrained(host.runtime, BASE);
    const wrong = (words, some, server = {}) =>
      served(some, server, () => refuses("invalid-checkpoint", words, load));
    await wrong(`${BASE}config.json`, {});
    await wrong([`${BASE}model.safetensors`, `${BASE}model.safetensors.index.json`], {
      "config.json": files["config.json"],
    });
    await wrong(`${BASE}part.safetensors`, {
      "config.json": files["config.json"],
      "model.safetensors.index.json": encode({ weight_map: { a: "part.safetensors" } }),
    });
    const short = files["model.safetensors"].slice(0, 5);
    await wrong(`${BASE}model.safetensors`, { ...files, "model.safetensors": short });
  },

  async "a server that is down is told by the first file that was asked for"(host) {
    const own = globalThis.fetch;
    globalThis.fetch = () => Promise.reject(new TypeError("fetch failed"));
    try {
      const load = () => host.tinyloom.Model.fromPretrained(host.runtime, BASE);
      const words = [`${BASE}config.json could not be fetched`, "fetch failed"];
      await refuses("invalid-checkpoint", words, load);
    } finally {
      globalThis.fetch = own;
    }
  },

  async "files that are far too long are refused unread"(host) {
    const files = await savedModel(host);
    // A Blob of that size whose content nobody may ask for.
    const huge = (bytes) => {
      const blob = new Blob(["{}"]);
      Object.defineProperty(blob, "size", { value: bytes });
      blob.slice = () => {
        throw new Error("read");
      };
      return blob;
    };
    const { Model, Trainer } = host.tinyloom;
    const load = (name) => () =>
      Model.fromPretrained(host.runtime, { ...files, [name]: huge(900 << 20) });
    await refuses("invalid-config", ["config.json", "943718400"], load("config.json"));
    const { "model.safetensors": _, ...index } = files;
    index["model.safetensors.index.json"] = huge(900 << 20);
    await refuses("invalid-checkpoint", ["index.json", "943718400"], () =>
      Model.fromPretrained(host.runtime, index),
    );
    await refuses("invalid-checkpoint", ["trainer_state.json", "943718400"], () =>
      Trainer.resume(host.runtime, { ...files, "trainer_state.json": huge(900 << 20) }),
    );
  },

  async "a run resumes over HTTP, in one progress"(host) {
    const { Model, Trainer } = host.tinyloom;
    const model = await Model.create(host.runtime, config, { seed: 3 });
    const trainer = await Trainer.create(model, { tokensPerStep: 16 });
    await trainer.step(batch(16));
    const files = await trainer.save();
    await trainer.step(batch(16, 16));
    const later = await trainer.save();
    model.free();
    const stages = [];
    const onProgress = ({ stage }) => {
      if (stages.at(-1) !== stage) stages.push(stage);
    };
    await served(files, {}, async () => {
      const again = await Trainer.resume(host.runtime, BASE, { onProgress });
      await again.step(batch(16, 16));
      sameFiles(await again.save(), later, "the second step");
      again.model.free();
    });
    const tensors = ["download model.safetensors", "download optimizer.safetensors"];
    equal(stages.slice(-2), tensors, "stages at the end");
    ok(!stages.slice(0, -2).some((stage) => tensors.includes(stage)), `${stages}`);
  },

  async "a download stops at the signal"(host) {
    const files = await savedModel(host, wide);
    const controller = new AbortController();
    const onProgress = ({ loaded }) => {
      if (loaded > 0) controller.abort();
    };
    const { gpuBytes } = host.runtime._counters();
    const asked = await served(files, {}, () =>
      refuses("aborted", [], () =>
        host.tinyloom.Model.fromPretrained(host.runtime, BASE, {
          signal: controller.signal,
          onProgress,
        }),
      ),
    );
    const sent = bytesOf(asked, "model.safetensors");
    ok(sent < files["model.safetensors"].length, `${sent} bytes were read`);
    equal(host.runtime._counters().gpuBytes, gpuBytes, "bytes on the GPU");
  },

  async "bytes that go away while they are read are reported"(host) {
    const files = await savedModel(host, wide);
    const weights = files["model.safetensors"];
    const onProgress = ({ loaded }) => {
      if (loaded > 0 && weights.length > 0)
        structuredClone(weights.buffer, { transfer: [weights.buffer] });
    };
    await refuses("invalid-checkpoint", ["model.safetensors", "transferred"], () =>
      host.tinyloom.Model.fromPretrained(host.runtime, files, { onProgress }),
    );
    equal(weights.length, 0, "bytes that are left");
  },
};
