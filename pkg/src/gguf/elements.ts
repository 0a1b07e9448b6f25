/**
 * ggml's element types as they are read, to the bit as the `gguf` package of Python computes them: each step is rounded
 * to f32. What is written is in `blocks.ts`.
 */

import { corrupt } from "../file-part.js";
import { fromHalves } from "../half.js";

/** How an element type is read. */
export interface ReadElement {
  readonly name: string;
  /** Elements that are stored together. A row has to be a multiple. */
  readonly block: number;
  /** Bytes of a block. */
  readonly bytes: number;
  /** The type in safetensors, where that has it. */
  readonly dtype?: "F32" | "F16" | "BF16";
  /** The values of whole blocks. */
  decode(blocks: Blocks, out: Float32Array): void;
  /** Whether the module takes its blocks as they are: of 32 codes and one factor. */
  readonly plain?: true;
}

/** Blocks one after the other. */
export class Blocks {
  readonly bytes: Uint8Array;
  readonly count: number;
  readonly #view: DataView;

  constructor(bytes: Uint8Array, { bytes: each }: Pick<ReadElement, "bytes">) {
    [this.bytes, this.count] = [bytes, bytes.length / each];
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  byte(at: number): number {
    return this.bytes[at] as number;
  }

  signed(at: number): number {
    return this.#view.getInt8(at);
  }

  word(at: number): number {
    return this.#view.getUint32(at, true);
  }

  float(at: number): number {
    return this.#view.getFloat32(at, true);
  }

  half(at: number): number {
    return HALVES[this.#view.getUint16(at, true)] as number;
  }

  brain(at: number): number {
    word[0] = this.#view.getUint16(at, true) << 16;
    return number[0] as number;
  }
}

/** The value of each half. */
const HALVES = fromHalves(Uint16Array.from({ length: 1 << 16 }, (_, bits) => bits));
const number = new Float32Array(1);
const word = new Uint32Array(number.buffer);
const round = Math.fround;

/** Elements of a block of the old types, and of the others. */
const [GROUP, SUPER] = [32, 256];

/** The element types by their number. */
const TYPES: { readonly [id: number]: ReadElement } = {
  0: single("F32", 4, (blocks, at) => blocks.float(at)),
  1: single("F16", 2, (blocks, at) => blocks.half(at)),
  30: single("BF16", 2, (blocks, at) => blocks.brain(at)),
  2: group("Q4_0", 18, nibbles(2, 8)),
  3: withLeast("Q4_1", 20, nibbles(4, 0)),
  6: group("Q5_0", 22, fives(2, 16)),
  7: withLeast("Q5_1", 24, fives(4, 0)),
  8: group("Q8_0", 34, (blocks, at, out, to) => {
    for (let i = 0; i < GROUP; i++) out[to + i] = blocks.signed(at + 2 + i);
  }),
  10: { name: "Q2_K", block: SUPER, bytes: 84, decode: decodeQ2 },
  11: { name: "Q3_K", block: SUPER, bytes: 110, decode: decodeQ3 },
  12: { name: "Q4_K", block: SUPER, bytes: 144, decode: decodeQ4 },
  13: { name: "Q5_K", block: SUPER, bytes: 176, decode: decodeQ5 },
  14: { name: "Q6_K", block: SUPER, bytes: 210, decode: decodeQ6 },
};

/** Names of what is not read, for messages. */
const OTHERS: { readonly [id: number]: string } = {
  9: "Q8_1",
  15: "Q8_K",
  16: "IQ2_XXS",
  17: "IQ2_XS",
  18: "IQ3_XXS",
  19: "IQ1_S",
  20: "IQ4_NL",
  21: "IQ3_S",
  22: "IQ2_S",
  23: "IQ4_XS",
  29: "IQ1_M",
  34: "TQ1_0",
  35: "TQ2_0",
  39: "MXFP4",
  40: "NVFP4",
};

/** The element type of a tensor. */
export function elementOf(place: string, tensor: string, id: number): ReadElement {
  const found = TYPES[id];
  if (found) return found;
  const known = Object.values(TYPES).map(({ name }) => name);
  throw corrupt(
    `${place}: tensor ${tensor} is of ggml's type ${OTHERS[id] ?? id}; ${known.join(", ")} are read. Take a file of ` +
      "one of these, or make one with llama-quantize",
  );
}

type Code = (blocks: Blocks, at: number, out: Float32Array, to: number) => void;

function single(
  dtype: "F32" | "F16" | "BF16",
  bytes: number,
  value: (blocks: Blocks, at: number) => number,
): ReadElement {
  return {
    name: dtype,
    dtype,
    block: 1,
    bytes,
    decode(blocks, out) {
      for (let index = 0; index < out.length; index++) out[index] = value(blocks, bytes * index);
    },
  };
}

/** Groups of one factor, a half that comes first: x = d · q. */
function group(name: string, bytes: number, code: Code): ReadElement {
  return {
    name,
    block: GROUP,
    bytes,
    plain: true,
    decode(blocks, out) {
      for (let at = 0; at < blocks.count; at++) code(blocks, at * bytes, out, at * GROUP);
      for (let index = 0; index < out.length; index++) {
        out[index] = blocks.half(Math.floor(index / GROUP) * bytes) * (out[index] as number);
      }
    },
  };
}

/** Groups with a factor and what is added, two halves that come first: x = d · q + m. */
function withLeast(name: string, bytes: number, code: Code): ReadElement {
  return {
    name,
    block: GROUP,
    bytes,
    decode(blocks, out) {
      for (let at = 0; at < blocks.count; at++) {
        const [from, to] = [at * bytes, at * GROUP];
        const [factor, least] = [blocks.half(from), blocks.half(from + 2)];
        code(blocks, from, out, to);
        for (let index = to; index < to + GROUP; index++) {
          out[index] = round(factor * (out[index] as number)) + least;
        }
      }
    },
  };
}

/** Four bits each, less `middle`: the first 16 elements are the low ones of 16 bytes. */
function nibbles(begin: number, middle: number): Code {
  return (blocks, at, out, to) => {
    for (let i = 0; i < 16; i++) {
      const byte = blocks.byte(at + begin + i);
      out[to + i] = (byte & 15) - middle;
      out[to + 16 + i] = (byte >> 4) - middle;
    }
  };
}

/** The same with a fifth bit each in the word before. */
function fives(begin: number, middle: number): Code {
  return (blocks, at, out, to) => {
    const high = blocks.word(at + begin);
    for (let i = 0; i < 16; i++) {
      const byte = blocks.byte(at + begin + 4 + i);
      out[to + i] = ((byte & 15) | (((high >>> i) & 1) << 4)) - middle;
      out[to + 16 + i] = ((byte >> 4) | (((high >>> (16 + i)) & 1) << 4)) - middle;
    }
  };
}

/** 16 groups of 16: bytes with a factor and what is taken away, then two bits each, then two halves. */
function decodeQ2(blocks: Blocks, out: Float32Array): void {
  for (let block = 0, at = 0; block < blocks.count; block++, at += 84) {
    const [d, least] = [blocks.half(at + 80), blocks.half(at + 82)];
    for (let group = 0; group < 16; group++) {
      const byte = blocks.byte(at + group);
      const [factor, less] = [round(d * (byte & 15)), round(least * (byte >> 4))];
      // 128 elements are in 32 bytes, two bits of each byte at a time.
      const from = at + 16 + 32 * (group >> 3) + 16 * (group & 1);
      const shift = 2 * ((group >> 1) & 3);
      const to = block * SUPER + 16 * group;
      for (let i = 0; i < 16; i++) {
        out[to + i] = round(factor * ((blocks.byte(from + i) >> shift) & 3)) - less;
      }
    }
  }
}

/** 16 groups of 16: a bit each, two bits each, 12 bytes with a factor of six bits per group, a half. */
function decodeQ3(blocks: Blocks, out: Float32Array): void {
  for (let block = 0, at = 0; block < blocks.count; block++, at += 110) {
    const d = blocks.half(at + 108);
    for (let group = 0; group < 16; group++) {
      const low = blocks.byte(at + 96 + (group & 7)) >> (group < 8 ? 0 : 4);
      const high = blocks.byte(at + 104 + (group & 3)) >> (2 * (group >> 2));
      const factor = round(d * (((low & 15) | ((high & 3) << 4)) - 32));
      const from = at + 32 + 32 * (group >> 3) + 16 * (group & 1);
      const shift = 2 * ((group >> 1) & 3);
      const [bits, bit] = [at + 16 * (group & 1), group >> 1];
      const to = block * SUPER + 16 * group;
      for (let i = 0; i < 16; i++) {
        const two = (blocks.byte(from + i) >> shift) & 3;
        // A bit that is set means that nothing is taken away.
        const less = (blocks.byte(bits + i) >> bit) & 1 ? 0 : 4;
        out[to + i] = factor * (two - less);
      }
    }
  }
}

/** Six bits of factor and of what is taken away, of group 0 to 7, packed in 12 bytes. */
function sixes(blocks: Blocks, at: number, group: number): [factor: number, less: number] {
  const [one, other] = [blocks.byte(at + (group & 3)), blocks.byte(at + 4 + (group & 3))];
  if (group < 4) return [one & 63, other & 63];
  const both = blocks.byte(at + 4 + group);
  return [(both & 15) | ((one >> 2) & 48), (both >> 4) | ((other >> 2) & 48)];
}

/** 8 groups of 32: two halves, 12 bytes of factors, four bits each. */
function decodeQ4(blocks: Blocks, out: Float32Array): void {
  for (let block = 0, at = 0; block < blocks.count; block++, at += 144) {
    decodeGroups(blocks, at, out, block, (group, i) => {
      return (blocks.byte(at + 16 + 32 * (group >> 1) + i) >> (4 * (group & 1))) & 15;
    });
  }
}

/** The same with a fifth bit each in 32 bytes before. */
function decodeQ5(blocks: Blocks, out: Float32Array): void {
  for (let block = 0, at = 0; block < blocks.count; block++, at += 176) {
    decodeGroups(blocks, at, out, block, (group, i) => {
      const low = (blocks.byte(at + 48 + 32 * (group >> 1) + i) >> (4 * (group & 1))) & 15;
      return low | (((blocks.byte(at + 16 + i) >> group) & 1) << 4);
    });
  }
}

function decodeGroups(
  blocks: Blocks,
  at: number,
  out: Float32Array,
  block: number,
  code: (group: number, i: number) => number,
): void {
  const [d, least] = [blocks.half(at), blocks.half(at + 2)];
  for (let group = 0; group < 8; group++) {
    const [factors, mins] = sixes(blocks, at + 4, group);
    const [factor, less] = [round(d * factors), round(least * mins)];
    const to = block * SUPER + GROUP * group;
    for (let i = 0; i < GROUP; i++) out[to + i] = round(factor * code(group, i)) - less;
  }
}

/** 16 groups of 16: four bits each, two bits each, a signed byte as factor of each group, a half. */
function decodeQ6(blocks: Blocks, out: Float32Array): void {
  for (let block = 0, at = 0; block < blocks.count; block++, at += 210) {
    const d = blocks.half(at + 208);
    for (let group = 0; group < 16; group++) {
      const factor = round(d * blocks.signed(at + 192 + group));
      // Of 128 elements, the low bits are in 64 bytes and the high ones in 32.
      const [half, quarter, side] = [group >> 3, (group >> 1) & 3, 16 * (group & 1)];
      const low = at + 64 * half + 32 * (quarter & 1) + side;
      const high = at + 128 + 32 * half + side;
      const to = block * SUPER + 16 * group;
      for (let i = 0; i < 16; i++) {
        const four = (blocks.byte(low + i) >> (quarter < 2 ? 0 : 4)) & 15;
        const two = (blocks.byte(high + i) >> (2 * quarter)) & 3;
        out[to + i] = factor * ((four | (two << 4)) - 32);
      }
    }
  }
}
