/**
 * A forward pass of a small Llama on the CPU: letter by letter, with all that the stage shows of it. RMSNorm, RoPE,
 * attention with shared keys and values, SwiGLU. Sums are in 64 bits, what is kept is in 32.
 */
import type { Weights } from "./weights.ts";

/** `out = matrix · vector`, or `out += …`. The matrix has a row for each output. */
function multiply(
  matrix: Float32Array,
  vector: Float32Array,
  out: Float32Array,
  add = false,
): void {
  const width = vector.length;
  for (let row = 0, at = 0; row < out.length; row++) {
    let [a, b, c, d] = [0, 0, 0, 0];
    let column = 0;
    for (; column + 3 < width; column += 4, at += 4) {
      a += matrix[at]! * vector[column]!;
      b += matrix[at + 1]! * vector[column + 1]!;
      c += matrix[at + 2]! * vector[column + 2]!;
      d += matrix[at + 3]! * vector[column + 3]!;
    }
    for (; column < width; column++, at++) a += matrix[at]! * vector[column]!;
    const sum = a + b + (c + d);
    out[row] = add ? out[row]! + sum : sum;
  }
}

function normalise(input: Float32Array, weight: Float32Array, epsilon: number, out: Float32Array) {
  let squares = 0;
  for (const value of input) squares += value * value;
  const scale = 1 / Math.sqrt(squares / input.length + epsilon);
  for (let at = 0; at < input.length; at++) out[at] = input[at]! * scale * weight[at]!;
}

function length(vector: Float32Array): number {
  let squares = 0;
  for (const value of vector) squares += value * value;
  return Math.sqrt(squares);
}

/** The number of a head among all of its model, for `off`. */
export const headAt = (heads: number, layer: number, head: number): number => layer * heads + head;

const NONE: ReadonlySet<number> = new Set();

export class Pass {
  readonly weights: Weights;
  /** Letters read so far. */
  size = 0;
  readonly #off: ReadonlySet<number>;
  /** Of each layer, keys and values of each letter. */
  readonly #keys: Float32Array[];
  readonly #values: Float32Array[];
  /** Of each layer and head, a row of shares for each letter. */
  readonly #shares: Float32Array[][] = [];
  /** The residual stream of each letter: as embedded, then after each layer. */
  readonly #states: Float32Array[][] = [];
  /** Of each letter and layer, how much the feed-forward block changed the stream, as a share of its length. */
  readonly #changes: number[][] = [];
  readonly #normed: Float32Array;
  readonly #query: Float32Array;
  readonly #mixed: Float32Array;
  readonly #gate: Float32Array;
  readonly #up: Float32Array;

  /**
   * @param most - letters that it may read.
   * @param off - heads that are switched off, by `headAt`: what they would add is left out.
   */
  constructor(weights: Weights, most: number, off = NONE) {
    const { layers, heads, kvHeads, headWidth, width, inner } = weights.shape;
    this.weights = weights;
    this.#off = off;
    const room = () => new Float32Array(most * kvHeads * headWidth);
    this.#keys = Array.from({ length: layers }, room);
    this.#values = Array.from({ length: layers }, room);
    this.#normed = new Float32Array(width);
    this.#query = new Float32Array(heads * headWidth);
    this.#mixed = new Float32Array(heads * headWidth);
    this.#gate = new Float32Array(inner);
    this.#up = new Float32Array(inner);
  }

  /** Reads the next letter. */
  read(token: number): void {
    const { weights } = this;
    const { layers, width, epsilon } = weights.shape;
    const at = this.size++;
    const stream = weights.embedding.slice(token * width, (token + 1) * width);
    const states = [stream.slice()];
    const changes: number[] = [];
    this.#shares.push([]);
    for (let layer = 0; layer < layers; layer++) {
      const own = weights.layers[layer]!;
      normalise(stream, own.attentionNorm, epsilon, this.#normed);
      this.#attend(layer, at);
      multiply(own.output, this.#mixed, stream, true);
      const before = stream.slice();
      normalise(stream, own.innerNorm, epsilon, this.#normed);
      multiply(own.gate, this.#normed, this.#gate);
      multiply(own.up, this.#normed, this.#up);
      for (let one = 0; one < this.#gate.length; one++) {
        const gate = this.#gate[one]!;
        this.#gate[one] = (gate / (1 + Math.exp(-gate))) * this.#up[one]!;
      }
      multiply(own.down, this.#gate, stream, true);
      states.push(stream.slice());
      changes.push(length(before.map((value, i) => stream[i]! - value)) / (length(before) || 1));
    }
    this.#states.push(states);
    this.#changes.push(changes);
  }

  /** Attention of a letter to itself and those before it; what the heads read lies in `#mixed`. */
  #attend(layer: number, at: number): void {
    const { heads, kvHeads, headWidth } = this.weights.shape;
    const own = this.weights.layers[layer]!;
    const row = kvHeads * headWidth;
    const keys = this.#keys[layer]!;
    const values = this.#values[layer]!;
    const key = keys.subarray(at * row, (at + 1) * row);
    multiply(own.query, this.#normed, this.#query);
    multiply(own.key, this.#normed, key);
    multiply(own.value, this.#normed, values.subarray(at * row, (at + 1) * row));
    this.#turn(this.#query, at);
    this.#turn(key, at);
    this.#mixed.fill(0);
    for (let head = 0; head < heads; head++) {
      const shared = Math.floor(head / (heads / kvHeads)) * headWidth;
      const shares = this.#sharesOf(head * headWidth, keys, shared, at);
      this.#shares[at]!.push(shares);
      if (this.#off.has(headAt(heads, layer, head))) continue;
      for (let from = 0; from <= at; from++) {
        const [share, start] = [shares[from]!, from * row + shared];
        for (let i = 0; i < headWidth; i++) {
          this.#mixed[head * headWidth + i]! += share * values[start + i]!;
        }
      }
    }
  }

  /** Softmax of a query's products with all keys. */
  #sharesOf(query: number, keys: Float32Array, shared: number, at: number): Float32Array {
    const { kvHeads, headWidth } = this.weights.shape;
    const shares = new Float32Array(at + 1);
    const scale = 1 / Math.sqrt(headWidth);
    let most = Number.NEGATIVE_INFINITY;
    for (let from = 0; from <= at; from++) {
      const start = from * kvHeads * headWidth + shared;
      let sum = 0;
      for (let i = 0; i < headWidth; i++) sum += this.#query[query + i]! * keys[start + i]!;
      shares[from] = sum * scale;
      most = Math.max(most, shares[from]!);
    }
    let sum = 0;
    for (let from = 0; from <= at; from++) sum += shares[from] = Math.exp(shares[from]! - most);
    for (let from = 0; from <= at; from++) shares[from]! /= sum;
    return shares;
  }

  /** RoPE: turns pairs of a head's numbers by angles that grow with the place. */
  #turn(vector: Float32Array, at: number): void {
    const { headWidth, theta } = this.weights.shape;
    const half = headWidth / 2;
    for (let i = 0; i < half; i++) {
      const angle = at * theta ** (-i / half);
      const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
      for (let start = 0; start < vector.length; start += headWidth) {
        const [a, b] = [vector[start + i]!, vector[start + i + half]!];
        vector[start + i] = a * cos - b * sin;
        vector[start + i + half] = b * cos + a * sin;
      }
    }
  }

  /** Shares with which a letter looks at itself and those before it. */
  shares(layer: number, head: number, at: number): Float32Array {
    return this.#shares[at]![layer * this.weights.shape.heads + head]!;
  }

  /** The residual stream of a letter: 0 as embedded, then after each layer. */
  state(layer: number, at: number): Float32Array {
    return this.#states[at]![layer]!;
  }

  /** How much a layer's feed-forward block changed a letter's stream, as a share of its length. */
  change(layer: number, at: number): number {
    return this.#changes[at]![layer]!;
  }

  /** What the model would say after a layer: final norm and head on its state. Without a layer, what it says. */
  logits(at = this.size - 1, layer = this.weights.shape.layers): Float32Array {
    const { norm, head, shape } = this.weights;
    const normed = new Float32Array(shape.width);
    normalise(this.state(layer, at), norm, shape.epsilon, normed);
    const logits = new Float32Array(shape.words);
    multiply(head, normed, logits);
    return logits;
  }
}

/** A token and its probability. */
export interface Guess {
  readonly token: number;
  readonly share: number;
}

/** The likeliest token of a row of logits. */
export function guessOf(logits: Float32Array): Guess {
  let token = 0;
  for (let at = 1; at < logits.length; at++) if (logits[at]! > logits[token]!) token = at;
  let sum = 0;
  for (const logit of logits) sum += Math.exp(logit - logits[token]!);
  return { token, share: 1 / sum };
}
