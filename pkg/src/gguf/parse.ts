/** Reads the frame of a GGUF file: metadata, and where each tensor lies. No tensor's data is read. */

import { anotherKind } from "../file-kind.js";
import { corrupt, type FilePart } from "../file-part.js";
import { show } from "../options.js";
import { MAGIC } from "./format.js";

/** A value of the metadata. */
export type Value = number | boolean | string | readonly Value[] | NumberArray | Texts;

type NumberArray = Int32Array | Float32Array;

/** A tensor of the file. */
export interface GgufTensor {
  readonly name: string;
  /** Rows first, as in safetensors. */
  readonly shape: readonly number[];
  /** Number of its element type in ggml. */
  readonly element: number;
  /** Its first byte in the file. */
  readonly begin: number;
}

export interface GgufHead {
  readonly metadata: ReadonlyMap<string, Value>;
  readonly tensors: readonly GgufTensor[];
}

/** Bytes that are read first. */
const FIRST = 1 << 20;
/** Bytes of a frame at most: that of a quarter of a million tokens takes about fifteen million. */
const MOST = 256 << 20;
/** Dimensions of a tensor in ggml. */
const DIMENSIONS = 4;
/** Bytes to whose multiples data is aligned, where the file names no other number. */
const ALIGNMENT = 32;

/** Says that the frame goes on after the bytes that are there. */
class Short extends Error {}

/**
 * The frame of a file, read from its beginning on until it ends.
 *
 * @throws TinyloomError `invalid-checkpoint`.
 */
export async function readHead(file: FilePart): Promise<GgufHead> {
  let bytes = await file.read(0, Math.min(FIRST, file.size));
  const another = begins(bytes) ? undefined : await anotherKind(file, "GGUF file");
  if (another) throw another;
  for (;;) {
    try {
      return headOf(bytes, file);
    } catch (error) {
      if (error instanceof RangeError) throw corrupt(`${file.place}: ${show(error)}`, error);
      if (!(error instanceof Short)) throw error;
    }
    if (bytes.length >= Math.min(file.size, MOST)) {
      throw corrupt(
        `${file.place} has ${file.size} bytes, and ends within its metadata; the file is truncated, fetch it again`,
      );
    }
    // Only what comes next is read: a server sends each byte once.
    const more = await file.read(bytes.length, Math.min(file.size, MOST, 4 * bytes.length));
    const longer = new Uint8Array(bytes.length + more.length);
    longer.set(bytes);
    longer.set(more, bytes.length);
    bytes = longer;
  }
}

/** Whether the first bytes are those of a GGUF file, as far as they go. */
const begins = (bytes: Uint8Array): boolean =>
  [..."GGUF"].every((letter, at) => at >= bytes.length || bytes[at] === letter.charCodeAt(0));

function headOf(bytes: Uint8Array, { place, size }: FilePart): GgufHead {
  const cursor = new Cursor(bytes, place, size);
  const magic = cursor.u32();
  const version = cursor.u32();
  if (magic !== MAGIC) {
    throw corrupt(
      `${place} does not begin with "GGUF"; it is no GGUF file, or an error page instead of one`,
    );
  }
  if (version > 0xffff) {
    throw corrupt(
      `${place} is a GGUF file of a big-endian computer; llama.cpp's gguf_convert_endian.py makes one that is read`,
    );
  }
  if (version !== 2 && version !== 3) {
    throw corrupt(`${place} is a GGUF file of version ${version}; versions 2 and 3 are read`);
  }
  const [tensorCount, keys] = [cursor.count(24), cursor.count(12)];
  const metadata = new Map<string, Value>();
  for (let key = 0; key < keys; key++) {
    const name = cursor.string();
    if (metadata.has(name)) throw corrupt(`${place} has the metadata ${show(name)} twice`);
    metadata.set(name, cursor.value(name, cursor.u32()));
  }
  const infos = Array.from({ length: tensorCount }, () => cursor.tensor());
  const names = new Set(infos.map(({ name }) => name));
  if (names.size < infos.length) throw corrupt(`${place} has two tensors of one name`);
  const alignment = metadata.get("general.alignment") ?? ALIGNMENT;
  if (typeof alignment !== "number" || !(alignment >= 1) || !Number.isInteger(alignment)) {
    throw corrupt(`${place}: general.alignment is ${show(alignment)}, and has to be a number`);
  }
  const data = Math.ceil(cursor.at / alignment) * alignment;
  const tensors = infos.map((info) => ({ ...info, begin: data + info.begin }));
  return { metadata, tensors: tensors.sort((a, b) => a.begin - b.begin) };
}

const utf8 = new TextDecoder("utf-8", { ignoreBOM: true });

/** A list of texts, which are decoded when they are asked for: a model needs none of its hundred thousand tokens. */
export class Texts {
  /** Each text's bytes after the eight of its length. */
  readonly #bytes: Uint8Array;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
  }

  all(): string[] {
    const view = new DataView(this.#bytes.buffer, this.#bytes.byteOffset, this.#bytes.byteLength);
    const texts: string[] = [];
    for (let at = 0; at < view.byteLength; ) {
      const begin = at + 8;
      at = begin + view.getUint32(begin - 8, true);
      texts.push(utf8.decode(this.#bytes.subarray(begin, at)));
    }
    return texts;
  }
}

/** Bytes of each type of metadata that is one number, and how it is read. */
const NUMBERS: {
  readonly [type: number]: readonly [bytes: number, (view: DataView, at: number) => number];
} = {
  0: [1, (view, at) => view.getUint8(at)],
  1: [1, (view, at) => view.getInt8(at)],
  2: [2, (view, at) => view.getUint16(at, true)],
  3: [2, (view, at) => view.getInt16(at, true)],
  4: [4, (view, at) => view.getUint32(at, true)],
  5: [4, (view, at) => view.getInt32(at, true)],
  6: [4, (view, at) => view.getFloat32(at, true)],
  10: [8, (view, at) => Number(view.getBigUint64(at, true))],
  11: [8, (view, at) => Number(view.getBigInt64(at, true))],
  12: [8, (view, at) => view.getFloat64(at, true)],
};
const [BOOL, STRING, ARRAY] = [7, 8, 9];

class Cursor {
  readonly #bytes: Uint8Array;
  readonly #view: DataView;
  readonly #place: string;
  /** Bytes of the whole file. */
  readonly #size: number;
  at = 0;

  constructor(bytes: Uint8Array, place: string, size: number) {
    this.#bytes = bytes;
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    [this.#place, this.#size] = [place, size];
  }

  /** The place of the next bytes. */
  #take(length: number): number {
    const at = this.at;
    if (at + length > this.#size) {
      throw corrupt(
        `${this.#place} has ${this.#size} bytes, and its metadata goes on to byte ${at + length}; the file is ` +
          "truncated or damaged, fetch it again",
      );
    }
    if (at + length > this.#bytes.length) throw new Short();
    this.at += length;
    return at;
  }

  u32(): number {
    return this.#view.getUint32(this.#take(4), true);
  }

  #u64(): number {
    const at = this.#take(8);
    return this.#view.getUint32(at, true) + 2 ** 32 * this.#view.getUint32(at + 4, true);
  }

  /** A count of things that take `each` bytes or more: no more than the file has room for. */
  count(each: number): number {
    const count = this.#u64();
    if (count * each <= this.#size) return count;
    throw corrupt(
      `${this.#place} states ${count} entries in ${this.#size} bytes; the file is damaged`,
    );
  }

  string(): string {
    const length = this.count(1);
    const at = this.#take(length);
    return utf8.decode(this.#bytes.slice(at, at + length));
  }

  value(name: string, type: number): Value {
    const number = NUMBERS[type];
    if (number) return number[1](this.#view, this.#take(number[0]));
    if (type === BOOL) return this.#view.getUint8(this.#take(1)) !== 0;
    if (type === STRING) return this.string();
    if (type !== ARRAY) throw corrupt(`${this.#place}: ${name} has the unknown type ${type}`);
    return this.#array(name, this.u32());
  }

  #array(name: string, type: number): Value {
    if (type === ARRAY) throw corrupt(`${this.#place}: ${name} is a list of lists`);
    const [bytes] = NUMBERS[type] ?? [type === STRING ? 8 : 1];
    const length = this.count(bytes);
    // Scores and kinds of tokens are long lists of numbers.
    if (type === 5 || type === 6) {
      const at = this.#take(4 * length);
      const copy = this.#bytes.slice(at, at + 4 * length).buffer;
      return type === 5 ? new Int32Array(copy) : new Float32Array(copy);
    }
    if (type === STRING) {
      const begin = this.at;
      for (let index = 0; index < length; index++) this.#take(this.count(1));
      return new Texts(this.#bytes.slice(begin, this.at));
    }
    const values: Value[] = [];
    for (let index = 0; index < length; index++) values.push(this.value(name, type));
    return values;
  }

  /** A tensor's entry; its place is counted from the data's beginning. */
  tensor(): GgufTensor {
    const name = this.string();
    const dimensions = this.u32();
    if (dimensions > DIMENSIONS) {
      throw corrupt(`${this.#place}: ${name} has ${dimensions} dimensions; the file is damaged`);
    }
    // ggml names the dimension that lies together first.
    const shape = Array.from({ length: dimensions }, () => this.#u64()).reverse();
    return { name, shape, element: this.u32(), begin: this.#u64() };
  }
}
