/**
 * The frame of a GGUF file of version 3: counts, metadata, names and places of the tensors, then their data.
 * The format is described at https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
 */

/** Bytes to whose multiples the data and each tensor in it are aligned. */
const ALIGNMENT = 32;

export const aligned = (bytes: number) => Math.ceil(bytes / ALIGNMENT) * ALIGNMENT;

/** The first four bytes, "GGUF", as a number. */
export const MAGIC = 0x46_55_47_47;

/** Numbers of the types of metadata. */
const UINT32 = 4;
const INT32 = 5;
const FLOAT32 = 6;
const BOOL = 7;
const STRING = 8;
const ARRAY = 9;

/** Bytes that grow. */
class Bytes {
  #view = new DataView(new ArrayBuffer(1 << 12));
  #length = 0;

  /** Makes room for more bytes; gives the place of the first. */
  #room(more: number): number {
    const at = this.#length;
    this.#length += more;
    if (this.#length > this.#view.byteLength) {
      const grown = new Uint8Array(Math.max(this.#length, 2 * this.#view.byteLength));
      grown.set(new Uint8Array(this.#view.buffer));
      this.#view = new DataView(grown.buffer);
    }
    return at;
  }

  u32(value: number): this {
    const at = this.#room(4);
    this.#view.setUint32(at, value, true);
    return this;
  }

  u64(value: number): this {
    const at = this.#room(8);
    this.#view.setBigUint64(at, BigInt(value), true);
    return this;
  }

  i32(value: number): this {
    const at = this.#room(4);
    this.#view.setInt32(at, value, true);
    return this;
  }

  f32(value: number): this {
    const at = this.#room(4);
    this.#view.setFloat32(at, value, true);
    return this;
  }

  u8(value: number): this {
    const at = this.#room(1);
    this.#view.setUint8(at, value);
    return this;
  }

  string(text: string): this {
    return this.bytes(utf8.encode(text), true);
  }

  /** @param counted - whether their number comes before them. */
  bytes(bytes: Uint8Array, counted = false): this {
    if (counted) this.u64(bytes.length);
    const at = this.#room(bytes.length);
    new Uint8Array(this.#view.buffer).set(bytes, at);
    return this;
  }

  get written(): Uint8Array<ArrayBuffer> {
    return new Uint8Array(this.#view.buffer as ArrayBuffer, 0, this.#length);
  }
}

const utf8 = new TextEncoder();

/** The file's metadata, as it is written. */
export class Metadata {
  readonly #bytes = new Bytes();
  #count = 0;

  get count(): number {
    return this.#count;
  }

  get written(): Uint8Array<ArrayBuffer> {
    return this.#bytes.written;
  }

  u32(key: string, value: number): void {
    this.#key(key, UINT32).u32(value);
  }

  f32(key: string, value: number): void {
    this.#key(key, FLOAT32).f32(value);
  }

  flag(key: string, value: boolean): void {
    this.#key(key, BOOL).u8(Number(value));
  }

  string(key: string, value: string): void {
    this.#key(key, STRING).string(value);
  }

  /** Adds what was written elsewhere. */
  append({ written, count }: Metadata): void {
    this.#bytes.bytes(written);
    this.#count += count;
  }

  strings(key: string, values: readonly string[]): void {
    const bytes = this.#array(key, STRING, values.length);
    for (const value of values) bytes.string(value);
  }

  i32s(key: string, values: readonly number[]): void {
    const bytes = this.#array(key, INT32, values.length);
    for (const value of values) bytes.i32(value);
  }

  f32s(key: string, values: readonly number[]): void {
    const bytes = this.#array(key, FLOAT32, values.length);
    for (const value of values) bytes.f32(value);
  }

  #array(key: string, type: number, length: number): Bytes {
    return this.#key(key, ARRAY).u32(type).u64(length);
  }

  #key(key: string, type: number): Bytes {
    this.#count += 1;
    return this.#bytes.string(key).u32(type);
  }
}

/** What the frame says of a tensor. */
export interface TensorInfo {
  readonly name: string;
  /** Rows first, as in safetensors. */
  readonly shape: readonly number[];
  /** Number of the element type in ggml. */
  readonly element: number;
  /** Bytes of its data. */
  readonly size: number;
}

/** Everything before the data, its padding included. The tensors' data follow in this order, each padded. */
export function header(
  metadata: Metadata,
  tensors: readonly TensorInfo[],
): Uint8Array<ArrayBuffer> {
  const bytes = new Bytes();
  bytes.u32(MAGIC).u32(3).u64(tensors.length).u64(metadata.count);
  bytes.bytes(metadata.written);
  let offset = 0;
  for (const { name, shape, element, size } of tensors) {
    bytes.string(name).u32(shape.length);
    // ggml names the dimension that lies together first.
    for (const length of [...shape].reverse()) bytes.u64(length);
    bytes.u32(element).u64(offset);
    offset += aligned(size);
  }
  const { length } = bytes.written;
  return bytes.bytes(new Uint8Array(aligned(length) - length)).written;
}
