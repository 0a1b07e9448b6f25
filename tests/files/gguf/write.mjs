// Writes small GGUF files by hand, apart from the code that is tested.

const utf8 = new TextEncoder();

export class GgufBytes {
  #bytes = [];
  #version;

  constructor(version = 3) {
    this.#version = version;
  }

  #number(length, write) {
    const view = new DataView(new ArrayBuffer(length));
    write(view);
    this.#bytes.push(...new Uint8Array(view.buffer));
  }

  #u32 = (value) => this.#number(4, (view) => view.setUint32(0, value, true));
  #u64 = (value) => this.#number(8, (view) => view.setBigUint64(0, BigInt(value), true));
  #f32 = (value) => this.#number(4, (view) => view.setFloat32(0, value, true));

  #string(text) {
    const bytes = utf8.encode(text);
    this.#u64(bytes.length);
    this.#bytes.push(...bytes);
  }

  /** A value with its type: a text, a flag, `{ f32 }`, `{ f32s }`, `{ i32s }`, a list, or else u32. */
  #value(value) {
    const [type, write] = this.#typed(value);
    this.#u32(type);
    write(value);
  }

  #typed(value) {
    if (typeof value === "string") return [8, () => this.#string(value)];
    if (typeof value === "boolean") return [7, () => this.#bytes.push(Number(value))];
    if (typeof value === "number") return [4, () => this.#u32(value)];
    if (value.f32 !== undefined) return [6, () => this.#f32(value.f32)];
    const numbers = value.f32s ?? value.i32s;
    const list = numbers ?? value;
    const write = () => {
      const type = value.f32s ? 6 : value.i32s ? 5 : this.#typed(list[0] ?? 0)[0];
      this.#u32(type);
      this.#u64(list.length);
      for (const one of list) {
        if (value.f32s) this.#f32(one);
        else this.#typed(one)[1]();
      }
    };
    return [9, write];
  }

  /**
   * The file. Metadata that is undefined is left out. Tensors have `name`, `shape` with rows first, `type`, and their
   * `data` in bytes, or `values` in f32, which are 0 by default.
   */
  file(metadata, tensors) {
    const keys = Object.entries(metadata).filter(([, value]) => value !== undefined);
    this.#bytes.push(...utf8.encode("GGUF"));
    this.#u32(this.#version);
    this.#u64(tensors.length);
    this.#u64(keys.length);
    for (const [name, value] of keys) {
      this.#string(name);
      this.#value(value);
    }
    const sizeOf = ({ shape, data }) =>
      Math.ceil((data?.length ?? shape.reduce((all, one) => all * one, 4)) / 32) * 32;
    let offset = 0;
    for (const tensor of tensors) {
      this.#string(tensor.name);
      this.#u32(tensor.shape.length);
      for (const length of [...tensor.shape].reverse()) this.#u64(length);
      this.#u32(tensor.type ?? 0);
      this.#u64(offset);
      offset += sizeOf(tensor);
    }
    while (this.#bytes.length % 32 !== 0) this.#bytes.push(0);
    for (const tensor of tensors) {
      const data = new Uint8Array(sizeOf(tensor));
      if (tensor.data) data.set(tensor.data);
      if (tensor.values) data.set(new Uint8Array(Float32Array.from(tensor.values).buffer));
      this.#bytes.push(...data);
    }
    return Uint8Array.from(this.#bytes);
  }
}
