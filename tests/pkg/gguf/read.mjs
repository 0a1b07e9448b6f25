// Reads GGUF files, apart from the code that writes them: metadata, tensors, and the weights that these stand for.

const utf8 = new TextDecoder();

class Cursor {
  constructor(bytes) {
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.bytes = bytes;
    this.at = 0;
  }

  take(length, read) {
    this.at += length;
    return read(this.at - length);
  }

  u32 = () => this.take(4, (at) => this.view.getUint32(at, true));
  u64 = () => Number(this.take(8, (at) => this.view.getBigUint64(at, true)));

  string() {
    const length = this.u64();
    return this.take(length, (at) => utf8.decode(this.bytes.subarray(at, at + length)));
  }

  value(type) {
    if (type === 4) return this.u32();
    if (type === 5) return this.take(4, (at) => this.view.getInt32(at, true));
    if (type === 6) return this.take(4, (at) => this.view.getFloat32(at, true));
    if (type === 7) return this.take(1, (at) => this.view.getUint8(at) === 1);
    if (type === 8) return this.string();
    if (type !== 9) throw new Error(`type ${type} of metadata`);
    const [element, length] = [this.u32(), this.u64()];
    return Array.from({ length }, () => this.value(element));
  }
}

/** `{ metadata, tensors }` of a file; a tensor has `name`, `shape` with rows first, `type` and `data`. */
export function readGguf(bytes) {
  const cursor = new Cursor(bytes);
  if (cursor.u32() !== 0x46554747 || cursor.u32() !== 3)
    throw new Error("no GGUF file of version 3");
  const [tensorCount, keys] = [cursor.u64(), cursor.u64()];
  const metadata = {};
  for (let key = 0; key < keys; key++) {
    const name = cursor.string();
    metadata[name] = cursor.value(cursor.u32());
  }
  const infos = Array.from({ length: tensorCount }, () => {
    const name = cursor.string();
    const shape = Array.from({ length: cursor.u32() }, () => cursor.u64()).reverse();
    return { name, shape, type: cursor.u32(), offset: cursor.u64() };
  });
  const begin = Math.ceil(cursor.at / 32) * 32;
  const tensors = infos.map(({ name, shape, type, offset }) => {
    const { block, bytes: size } = TYPES[type];
    const length = (shape.reduce((all, one) => all * one, 1) / block) * size;
    const data = bytes.slice(begin + offset, begin + offset + length);
    if (data.length !== length || offset % 32 !== 0) throw new Error(`the place of ${name}`);
    return { name, shape, type, data };
  });
  return { metadata, tensors };
}

function half(view, at) {
  const bits = view.getUint16(at, true);
  const [exponent, fraction] = [(bits >> 10) & 31, bits & 1023];
  const sign = bits & 0x8000 ? -1 : 1;
  return (
    sign * (exponent === 0 ? fraction * 2 ** -24 : (1 + fraction / 1024) * 2 ** (exponent - 15))
  );
}

/** Element types by number: weights of a block, its bytes, and weight `i` of the block at `at`. */
const TYPES = {
  0: { block: 1, bytes: 4, weight: (view, at) => view.getFloat32(at, true) },
  1: { block: 1, bytes: 2, weight: half },
  8: { block: 32, bytes: 34, weight: (view, at, i) => half(view, at) * view.getInt8(at + 2 + i) },
  2: {
    block: 32,
    bytes: 18,
    weight(view, at, i) {
      const byte = view.getUint8(at + 2 + (i % 16));
      return half(view, at) * ((i < 16 ? byte & 15 : byte >> 4) - 8);
    },
  },
};

/** The weights of a tensor in f32. */
export function weightsOf({ shape, type, data }) {
  const { block, bytes, weight } = TYPES[type];
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  const count = shape.reduce((all, one) => all * one, 1);
  return Float32Array.from({ length: count }, (_, i) =>
    weight(view, Math.floor(i / block) * bytes, i % block),
  );
}

/** Names of transformers by those of llama.cpp. */
const NAMES = {
  token_embd: "model.embed_tokens",
  output_norm: "model.norm",
  output: "lm_head",
  attn_norm: "input_layernorm",
  attn_q: "self_attn.q_proj",
  attn_k: "self_attn.k_proj",
  attn_v: "self_attn.v_proj",
  attn_output: "self_attn.o_proj",
  attn_q_norm: "self_attn.q_norm",
  attn_k_norm: "self_attn.k_norm",
  ffn_norm: "post_attention_layernorm",
  ffn_gate: "mlp.gate_proj",
  ffn_up: "mlp.up_proj",
  ffn_down: "mlp.down_proj",
};

/** The name in a checkpoint of transformers; undefined where that has no such tensor. */
export function nameOf(name) {
  const [, layer, module, kind] = /^(?:blk\.(\d+)\.)?(\w+)\.(weight|bias)$/.exec(name);
  if (module === "rope_freqs") return undefined;
  const block = layer === undefined ? "" : `model.layers.${layer}.`;
  return `${block}${NAMES[module]}.${kind}`;
}

/** Rows of queries or keys back in the order of transformers: first the first halves of all pairs of a head. */
function unpaired(values, [rows, columns], headDim) {
  const back = new Float32Array(values.length);
  for (let row = 0; row < rows; row++) {
    const [head, within] = [Math.floor(row / headDim), row % headDim];
    const to = head * headDim + (within % 2) * (headDim / 2) + Math.floor(within / 2);
    back.set(values.subarray(row * columns, (row + 1) * columns), to * columns);
  }
  return back;
}

/** The weights of a file by their names in a checkpoint of transformers, in its layout: `{ shape, values }`. */
export function checkpointOf({ metadata, tensors }) {
  const paired = metadata["general.architecture"] === "llama";
  const headDim = metadata["llama.attention.key_length"];
  const named = tensors.flatMap((tensor) => {
    const name = nameOf(tensor.name);
    if (!name) return [];
    const values = weightsOf(tensor);
    const turn = paired && /\.attn_[qk]\.weight$/.test(tensor.name);
    return [
      [
        name,
        { shape: tensor.shape, values: turn ? unpaired(values, tensor.shape, headDim) : values },
      ],
    ];
  });
  return Object.fromEntries(named);
}
