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

/** Names of transformers by those of llama.cpp: Llama's, and by architecture what others have instead. */
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
const AROUND = {
  post_attention_norm: "post_attention_layernorm",
  ffn_norm: "pre_feedforward_layernorm",
  post_ffw_norm: "post_feedforward_layernorm",
};
const OTHERS = {
  gpt2: {
    block: "transformer.h.",
    token_embd: "transformer.wte",
    position_embd: "transformer.wpe",
    output_norm: "transformer.ln_f",
    attn_norm: "ln_1",
    attn_qkv: "attn.c_attn",
    attn_output: "attn.c_proj",
    ffn_norm: "ln_2",
    ffn_up: "mlp.c_fc",
    ffn_down: "mlp.c_proj",
  },
  gptneox: {
    block: "gpt_neox.layers.",
    token_embd: "gpt_neox.embed_in",
    output_norm: "gpt_neox.final_layer_norm",
    output: "embed_out",
    attn_qkv: "attention.query_key_value",
    attn_output: "attention.dense",
    ffn_up: "mlp.dense_h_to_4h",
    ffn_down: "mlp.dense_4h_to_h",
  },
  gemma2: AROUND,
  gemma3: AROUND,
  olmo2: AROUND,
  phi3: { attn_qkv: "self_attn.qkv_proj", ffn_up: "mlp.gate_up_proj" },
};

/** The name in a checkpoint of transformers; undefined where that has no such tensor. */
function nameOf(name, architecture) {
  const [, layer, module, kind] = /^(?:blk\.(\d+)\.)?(\w+)\.(weight|bias)$/.exec(name);
  if (module.startsWith("rope_f")) return undefined;
  const names = { block: "model.layers.", ...NAMES, ...OTHERS[architecture] };
  const block = layer === undefined ? "" : `${names.block}${layer}.`;
  return `${block}${names[module]}.${kind}`;
}

/** Rows in another order: the row that comes to each place, by its number. */
function reordered({ shape, values }, from) {
  const columns = values.length / shape[0];
  const back = new Float32Array(values.length);
  for (let row = 0; row < shape[0]; row++) {
    const at = from(row) * columns;
    back.set(values.subarray(at, at + columns), row * columns);
  }
  return { shape, values: back };
}

/** Rows of queries or keys back in the order of transformers: first the first halves of all pairs of a head. */
const unpaired = (tensor, { headDim }) =>
  reordered(tensor, (row) => {
    const [head, within] = [Math.floor(row / headDim), row % headDim];
    const half = headDim / 2;
    return head * headDim + 2 * (within % half) + Math.floor(within / half);
  });

/** Queries, keys and values back in the order of transformers: head by head. */
const byHeads = (tensor, { headDim, heads }) =>
  reordered(tensor, (row) => {
    const [head, part] = [Math.floor(row / headDim / 3), Math.floor(row / headDim) % 3];
    return (part * heads + head) * headDim + (row % headDim);
  });

/** A matrix by inputs, as GPT-2 has it. */
function turned({ shape: [rows, columns], values }) {
  const back = new Float32Array(values.length);
  for (let at = 0; at < values.length; at++) {
    back[(at % columns) * rows + Math.floor(at / columns)] = values[at];
  }
  return { shape: [columns, rows], values: back };
}

const minusOne = ({ shape, values }) => ({ shape, values: values.map((value) => value - 1) });

/** What is undone in an architecture: tensors by an expression, and how. */
const UNDONE = {
  llama: [/\.attn_[qk]\.(weight|bias)$/, unpaired],
  smollm3: [/\.attn_[qk]\.weight$/, unpaired],
  granite: [/\.attn_[qk]\.weight$/, unpaired],
  gpt2: [/\.(attn_qkv|attn_output|ffn_up|ffn_down)\.weight$/, turned],
  gptneox: [/\.attn_qkv\./, byHeads],
  gemma: [/_norm\.weight$/, minusOne],
  gemma2: [/_norm\.weight$/, minusOne],
  gemma3: [/_norm\.weight$/, minusOne],
};

/** The weights of a file by their names in a checkpoint of transformers, in its layout: `{ shape, values }`. */
export function checkpointOf({ metadata, tensors }) {
  const architecture = metadata["general.architecture"];
  const sizes = {
    heads: metadata[`${architecture}.attention.head_count`],
    headDim: metadata[`${architecture}.attention.key_length`],
  };
  const [which, undo] = UNDONE[architecture] ?? [];
  const named = tensors.flatMap((tensor) => {
    const name = nameOf(tensor.name, architecture);
    if (!name) return [];
    const own = { shape: tensor.shape, values: weightsOf(tensor) };
    return [[name, which?.test(tensor.name) ? undo(own, sizes) : own]];
  });
  return Object.fromEntries(named);
}
