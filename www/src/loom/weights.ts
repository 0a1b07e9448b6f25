/** Weights of a small Llama-shaped model as the stage keeps them: in 16 bits, step by step. */
import type { ModelConfig } from "tinyloom";

/** The sizes of a model that the stage can weave. */
export interface Shape {
  readonly layers: number;
  readonly width: number;
  readonly heads: number;
  /** Heads of keys and values; several heads share one. */
  readonly kvHeads: number;
  readonly headWidth: number;
  /** Width of the feed-forward block. */
  readonly inner: number;
  readonly words: number;
  readonly theta: number;
  readonly epsilon: number;
  /** Whether the head is the embedding's own matrix. */
  readonly tied: boolean;
}

/** The most weights of a model that is woven: a pass of a letter has to be much shorter than a picture. */
const MOST = 2_000_000;

/** The shape of a config; undefined where the pass knows no such model, or one so large would be slow. */
export function weavable(config: ModelConfig): Shape | undefined {
  const { model_type: type = "llama", hidden_act: act = "silu" } = config;
  const width = config.hidden_size;
  const heads = config.num_attention_heads;
  const layers = config.num_hidden_layers;
  const inner = config.intermediate_size;
  if (type !== "llama" || act !== "silu" || !width || !heads || !layers || !inner) return undefined;
  const others = ["rope_scaling", "rope_parameters", "attention_bias", "mlp_bias"] as const;
  if (others.some((field) => config[field])) return undefined;
  const shape: Shape = {
    layers,
    width,
    heads,
    kvHeads: config.num_key_value_heads ?? heads,
    headWidth: config.head_dim ?? width / heads,
    inner,
    words: config.vocab_size ?? 256,
    theta: config.rope_theta ?? 10_000,
    epsilon: config.rms_norm_eps ?? 1e-6,
    tied: config.tie_word_embeddings ?? false,
  };
  return shape.words <= 256 && sizeOf(shape) <= MOST ? shape : undefined;
}

/** Name and size of each tensor, in the order in which a snapshot has them. */
function tensors(shape: Shape): [name: string, size: number][] {
  const { layers, width, heads, kvHeads, headWidth, inner, words, tied } = shape;
  const [all, shared] = [heads * headWidth * width, kvHeads * headWidth * width];
  const list: [string, number][] = [["model.embed_tokens.weight", words * width]];
  for (let layer = 0; layer < layers; layer++) {
    for (const [name, size] of [
      ["input_layernorm", width],
      ["self_attn.q_proj", all],
      ["self_attn.k_proj", shared],
      ["self_attn.v_proj", shared],
      ["self_attn.o_proj", all],
      ["post_attention_layernorm", width],
      ["mlp.gate_proj", inner * width],
      ["mlp.up_proj", inner * width],
      ["mlp.down_proj", inner * width],
    ] as const) {
      list.push([`model.layers.${layer}.${name}.weight`, size]);
    }
  }
  list.push(["model.norm.weight", width]);
  if (!tied) list.push(["lm_head.weight", words * width]);
  return list;
}

/** Weights of a model of this shape. */
export const sizeOf = (shape: Shape): number =>
  tensors(shape).reduce((sum, [, size]) => sum + size, 0);

/** What a layer has. Matrices are rows of outputs. */
export interface Layer {
  readonly attentionNorm: Float32Array;
  readonly query: Float32Array;
  readonly key: Float32Array;
  readonly value: Float32Array;
  readonly output: Float32Array;
  readonly innerNorm: Float32Array;
  readonly gate: Float32Array;
  readonly up: Float32Array;
  readonly down: Float32Array;
}

/** Weights in 32 bits, as the pass reads them. */
export interface Weights {
  readonly shape: Shape;
  readonly embedding: Float32Array;
  readonly layers: readonly Layer[];
  readonly norm: Float32Array;
  readonly head: Float32Array;
}

/** Cuts numbers, in the order of `tensors`, into a model's weights. */
export function weightsOf(shape: Shape, numbers: Float32Array): Weights {
  let at = 0;
  const next = (size: number) => {
    at += size;
    return numbers.subarray(at - size, at);
  };
  const sizes = tensors(shape).map(([, size]) => size);
  const parts = sizes.map(next);
  const layers = Array.from({ length: shape.layers }, (_, layer): Layer => {
    const part = (which: number): Float32Array => parts[1 + 9 * layer + which]!;
    return {
      attentionNorm: part(0),
      query: part(1),
      key: part(2),
      value: part(3),
      output: part(4),
      innerNorm: part(5),
      gate: part(6),
      up: part(7),
      down: part(8),
    };
  });
  const embedding = parts[0]!;
  const norm = parts[1 + 9 * shape.layers]!;
  return { shape, embedding, layers, norm, head: shape.tied ? embedding : parts.at(-1)! };
}

/** Fills `numbers` with all weights of a safetensors file, in the order of `tensors`: of 16 bits or of 32, as they are. */
export function numbersOf<T extends Uint16Array | Float32Array>(
  shape: Shape,
  file: Uint8Array,
  numbers: T,
): T {
  const view = new DataView(file.buffer, file.byteOffset, file.byteLength);
  const end = 8 + Number(view.getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(file.subarray(8, end))) as {
    [name: string]: { dtype: string; data_offsets: [number, number] };
  };
  const wanted = numbers.BYTES_PER_ELEMENT === 2 ? "F16" : "F32";
  const bytes = new Uint8Array(numbers.buffer, numbers.byteOffset, numbers.byteLength);
  let at = 0;
  for (const [name, size] of tensors(shape)) {
    const { dtype, data_offsets: [from, to] = [0, 0] } = header[name] ?? { dtype: "none" };
    if (dtype !== wanted || to - from !== size * numbers.BYTES_PER_ELEMENT)
      throw new Error(
        `${name} has ${to - from} bytes of ${dtype}, and not ${size} numbers of ${wanted}`,
      );
    bytes.set(file.subarray(end + from, end + to), at);
    at += to - from;
  }
  return numbers;
}

const bits = new Uint32Array(1);
const number = new Float32Array(bits.buffer);

/** A number as f16's bits: rounded to the nearest, ties to even. */
function halfBits(value: number): number {
  number[0] = value;
  const all = bits[0]!;
  const sign = (all >>> 16) & 0x8000;
  const size = all & 0x7fffffff;
  if (size >= 0x47800000) return sign | (size > 0x7f800000 ? 0x7e00 : 0x7c00);
  if (size < 0x38800000) return sign | Math.round(Math.abs(number[0]!) * 2 ** 24);
  return sign | ((size - 0x38000000 + 0xfff + ((size >>> 13) & 1)) >>> 13);
}

/** Numbers in 16 bits take half the memory. A model of them answers nearly all questions as before. */
export function narrowed(numbers: Float32Array): Uint16Array {
  const halves = new Uint16Array(numbers.length);
  for (let at = 0; at < numbers.length; at++) halves[at] = halfBits(numbers[at]!);
  return halves;
}

let table: Float32Array | undefined;

/** The value of each of f16's patterns. */
function halves(): Float32Array {
  if (table) return table;
  table = new Float32Array(1 << 16);
  for (let one = 0; one < 1 << 15; one++) {
    const [exponent, fraction] = [one >> 10, one & 0x3ff];
    const value =
      exponent === 31
        ? fraction === 0
          ? Number.POSITIVE_INFINITY
          : Number.NaN
        : exponent === 0
          ? fraction * 2 ** -24
          : (1 + fraction / 1024) * 2 ** (exponent - 15);
    table[one] = value;
    table[one | 0x8000] = -value;
  }
  return table;
}

/** Numbers of 16 bits in 32. */
export function widened(narrow: Uint16Array): Float32Array {
  const values = halves();
  const wide = new Float32Array(narrow.length);
  for (let at = 0; at < narrow.length; at++) wide[at] = values[narrow[at]!]!;
  return wide;
}
