// What the test bodies share: a tiny model, a text, safetensors files made by hand.
import { close, ok } from "./assert.mjs";

/** A model that a software adapter trains in tens of milliseconds per step. */
export const config = {
  model_type: "llama",
  vocab_size: 256,
  hidden_size: 64,
  intermediate_size: 128,
  num_hidden_layers: 2,
  num_attention_heads: 2,
  num_key_value_heads: 1,
  max_position_embeddings: 64,
  tie_word_embeddings: true,
};

/** A text with enough regularity to be learnt in a few steps. */
export const text = Array.from(
  { length: 240 },
  (_, i) => `the ${["cat", "dog", "owl"][i % 3]} sat on ${["the mat", "a log"][i % 2]}. `,
).join("");

export const trainerOptions = {
  learningRate: 3e-3,
  warmupSteps: 4,
  tokensPerStep: 64,
  totalSteps: 20,
  seed: 7,
};
export const datasetOptions = { sequenceLength: 16, validationFraction: 0.1, seed: 3 };

/** A fresh dataset of the text. */
export const dataset = ({ Dataset, ByteTokenizer }) =>
  Dataset.fromText(text, new ByteTokenizer(), datasetOptions);

/** Everything an async iterable gives. */
export async function collect(iterable) {
  const all = [];
  for await (const one of iterable) all.push(one);
  return all;
}

export const pause = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

/** What the work gives; it fails where that takes ten seconds. No timer is left behind. */
export async function soon(what, work) {
  let timer;
  const hung = new Promise((_, fail) => {
    timer = setTimeout(() => fail(new Error(`${what} hung`)), 10_000);
  });
  try {
    return await Promise.race([work, hung]);
  } finally {
    clearTimeout(timer);
  }
}

/** Waits until it is so, for a minute at most. */
export async function waitFor(what, so) {
  const end = performance.now() + 60_000;
  while (!so()) {
    if (performance.now() > end) throw new Error(`not within a minute: ${what}`);
    await pause(20);
  }
}

/** A batch that predicts each next byte of the text. */
export function batch(length, start = 0) {
  const bytes = Uint32Array.from(new TextEncoder().encode(text.slice(start, start + length + 1)));
  return { tokens: bytes.slice(0, length), targets: bytes.slice(1) };
}

/** A copy of the array in memory that other threads may write at any time. */
export function inSharedMemory(array) {
  // A page that is not isolated has no other SharedArrayBuffer.
  const { buffer } = new WebAssembly.Memory({ initial: 1, maximum: 1, shared: true });
  const shared = new array.constructor(buffer, 0, array.length);
  shared.set(array);
  return shared;
}

/** The header and the data of a safetensors file. */
export function openFile(bytes) {
  const length = Number(new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0, true));
  return {
    header: JSON.parse(new TextDecoder().decode(bytes.subarray(8, 8 + length))),
    data: bytes.subarray(8 + length),
  };
}

/**
 * Holds the predicted bytes of a snapshot to those that it takes: of the GPU to within the padding between tensors, and
 * of the host to twice the tensors' data at most.
 */
export async function sameSnapshot({ internal }, runtime, trained, { gpu, host }, what) {
  const { handle, recovery } = internal.models.of(trained);
  const raws = [handle.raw, ...recovery.trainers.map((trainer) => trainer.handle.raw)];
  const before = runtime._counters().gpuBytes;
  const copies = await Promise.all(raws.map((raw) => raw.snapshot()));
  const took = runtime._counters().gpuBytes - before;
  for (const copy of copies) {
    copy.release();
    copy.free();
  }
  const tensors = raws.reduce((sum, raw) => sum + raw.tensorCount(), 0);
  close(took, gpu, 256 * tensors, `bytes of the GPU for ${what}`);
  const data = raws.reduce((sum, raw) => sum + dataBytes(raw.saveHeader()), 0);
  const fits = 2 * data <= host && host - 2 * data <= 512 * tensors;
  ok(fits, `bytes of the host for ${what}: ${host}, of a snapshot's data ${data}`);
}

/** Bytes of the data behind a safetensors header, framed as in a file. */
function dataBytes(framed) {
  const { __metadata__: _, ...entries } = openFile(framed).header;
  return Math.max(0, ...Object.values(entries).map(({ data_offsets }) => data_offsets[1]));
}

/** A safetensors file of a header (an object, or text as it is) and data. */
export function makeFile(header, data = new Uint8Array(0)) {
  const json = new TextEncoder().encode(
    typeof header === "string" ? header : JSON.stringify(header),
  );
  const file = new Uint8Array(8 + json.length + data.length);
  new DataView(file.buffer).setBigUint64(0, BigInt(json.length), true);
  file.set(json, 8);
  file.set(data, 8 + json.length);
  return file;
}

/**
 * Files of a model that is not tied, whose logits overflow behind that token, and nowhere else: of its embedding alone
 * the first channel, which nothing else reaches, is not 0.
 */
export function overflowing(files, { hidden_size: width }, token) {
  const {
    header: { __metadata__, ...header },
    data: saved,
  } = openFile(files["model.safetensors"]);
  const file = makeFile(header, saved); // without the checksums, since weights change
  const { data } = openFile(file);
  for (const [name, { shape, data_offsets }] of Object.entries(header)) {
    const view = new DataView(file.buffer, data.byteOffset + data_offsets[0]);
    const row = shape.at(-1) * 4;
    if (/o_proj|down_proj/.test(name)) for (let i = 0; i < row; i += 4) view.setFloat32(i, 0, true);
    if (!/embed_tokens|lm_head/.test(name)) continue;
    const value = name.includes("embed") ? 0 : 3e38; // finite, unless the channel has something
    for (let i = 0; i < shape[0]; i++) view.setFloat32(i * width * 4, value, true);
    if (name.includes("embed") && token !== undefined) view.setFloat32(token * width * 4, 10, true);
  }
  return { ...files, "model.safetensors": file };
}

/** The same checkpoint with every F32 tensor as BF16 (by truncation) or F16. */
export function convert(bytes, dtype) {
  const { header, data } = openFile(bytes);
  const made = {};
  const pieces = [];
  let offset = 0;
  for (const [name, entry] of Object.entries(header)) {
    if (name === "__metadata__") continue;
    const [begin, end] = entry.data_offsets;
    const words = new Uint32Array(data.slice(begin, end).buffer);
    const half = Uint16Array.from(words, dtype === "BF16" ? (word) => word >>> 16 : toHalf);
    pieces.push(new Uint8Array(half.buffer));
    made[name] = { dtype, shape: entry.shape, data_offsets: [offset, offset + half.byteLength] };
    offset += half.byteLength;
  }
  return makeFile(made, concat(pieces));
}

/** Neighbours of a matrix that share a scale, where it is held in codes. */
export const GROUP = 32;

/** The numbers that codes of "int8" or "int4" stand for, in 32-bit arithmetic, as docs/guides/adapters.md has them. */
export function unpacked(values, format) {
  const made = new Float32Array(values.length);
  for (let at = 0; at < values.length; at += GROUP) {
    made.set(unpackedGroup(values.subarray(at, at + GROUP), format), at);
  }
  return made;
}

function unpackedGroup(group, format) {
  const f32 = Math.fround;
  const extreme = group.reduce((most, x) => (Math.abs(x) > Math.abs(most) ? x : most), 0);
  if (Math.abs(extreme) < 1e-30) return group.map(() => 0);
  const [scale, least, most] =
    format === "int8" ? [f32(Math.abs(extreme) / 127), -127, 127] : [f32(extreme / -8), -8, 7];
  const inverse = f32(1 / scale);
  return group.map((x) => {
    const steps = f32(x * inverse);
    const tie = Math.abs(steps % 1) === 0.5;
    const nearest = tie ? 2 * Math.round(steps / 2) : Math.round(steps);
    return scale * (Math.min(Math.max(nearest, least), most) + 0); // no code is -0
  });
}

/** The pieces in one array. */
export function concat(pieces) {
  const whole = new Uint8Array(pieces.reduce((sum, piece) => sum + piece.length, 0));
  let offset = 0;
  for (const piece of pieces) {
    whole.set(piece, offset);
    offset += piece.length;
  }
  return whole;
}

/** Bits of the 16-bit float below in magnitude; numbers too small become zero. */
function toHalf(word) {
  const sign = (word >>> 16) & 0x8000;
  const exponent = ((word >>> 23) & 0xff) - 112;
  return exponent <= 0 ? sign : sign | (exponent << 10) | ((word >>> 13) & 0x3ff);
}

/**
 * Does work during which the clock stands still: the module learns nothing of the GPU's speed, so that it cuts
 * work alike however busy the machine is.
 */
export async function withStillClock(work) {
  const at = performance.now();
  performance.now = () => at;
  try {
    return await work();
  } finally {
    delete performance.now; // that of the prototype is seen again
  }
}

/** The SHA-256 of bytes in hexadecimal digits, as the host computes it. */
export async function sha256(bytes) {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** From now on the GPU object gives adapters whose devices cannot be made. */
export function refuseDevices({ gpu: real }, gpu) {
  gpu.requestAdapter = async (options) => {
    const { features, limits, info } = await real.requestAdapter(options);
    const requestDevice = () => Promise.reject(new Error("no device"));
    return { features, limits, info, requestDevice };
  };
}
