/** The weights of a GGUF file as a safetensors file would have them, made while they are read. */

import { corrupt, type FilePart, type Groups } from "../file-part.js";
import type { ModelConfig } from "../model-config.js";
import { show } from "../options.js";
import { framed } from "../safetensors.js";
import { CHANGES } from "./changes.js";
import { Blocks, elementOf, type ReadElement } from "./elements.js";
import type { Change, Elements, GgufNames } from "./family.js";
import type { GgufTensor } from "./parse.js";

/** A tensor on its way from a GGUF file to safetensors. */
interface Entry {
  readonly tensor: GgufTensor;
  readonly element: ReadElement;
  /** Elements in all, in a row, and of what is changed back together. */
  readonly count: number;
  readonly columns: number;
  readonly unit: number;
  readonly change: Change | undefined;
  /** Whether 16 bits stay as they are. */
  readonly dtype: "F32" | "F16" | "BF16";
  /** Bytes of an element, and the tensor's first byte among the data. */
  readonly each: 2 | 4;
  readonly begin: number;
}

/** Elements of an entry that have been made. */
interface Made {
  readonly entry: Entry;
  readonly from: number;
  readonly to: number;
  readonly elements: Elements;
  /** The factors of codes, one to a group. */
  readonly scales?: Float32Array;
}

/** Codes to a factor. */
const GROUP = 32;

/**
 * A tensor's name in the checkpoint.
 *
 * @param names - by llama.cpp's names of modules.
 */
export type NameOf = (tensor: GgufTensor) => { readonly name: string; readonly module: string };

/** The file of these tensors. */
export function weightsOf(
  file: FilePart,
  tensors: readonly GgufTensor[],
  { changes }: GgufNames,
  nameOf: NameOf,
  config: ModelConfig,
): FilePart {
  const header: { [name: string]: object } = {};
  const entries: Entry[] = [];
  let begin = 0;
  for (const tensor of tensors) {
    const { name, module } = nameOf(tensor);
    const kind = changes[module];
    const change = kind && CHANGES[kind];
    const shape = change?.shape?.(tensor.shape) ?? tensor.shape;
    const entry = entryOf(file, tensor, change, config, begin);
    if (header[name]) throw corrupt(`${file.place} has ${show(name)} twice`);
    const end = begin + entry.count * entry.each;
    header[name] = { dtype: entry.dtype, shape, data_offsets: [begin, end] };
    entries.push(entry);
    begin = end;
  }
  return new Weights(file, framed(header), entries, begin, config);
}

function entryOf(
  file: FilePart,
  tensor: GgufTensor,
  change: Change | undefined,
  config: ModelConfig,
  begin: number,
): Entry {
  const element = elementOf(file.place, tensor.name, tensor.element);
  const count = tensor.shape.reduce((all, length) => all * length, 1);
  const columns = tensor.shape.length < 2 ? 1 : (tensor.shape.at(-1) as number);
  const row = tensor.shape.at(-1) ?? 1;
  const size = (count / element.block) * element.bytes;
  if (row % element.block !== 0 || !Number.isSafeInteger(count)) {
    throw corrupt(
      `${file.place}: tensor ${tensor.name} has shape ${show(tensor.shape)}, whose rows are no whole blocks of ` +
        `${element.name}; the file is damaged`,
    );
  }
  if (tensor.begin + size > file.size) {
    throw corrupt(
      `${file.place} has ${file.size} bytes, and tensor ${tensor.name} ends at byte ${tensor.begin + size}; the file ` +
        "is truncated, fetch it again",
    );
  }
  // Where values change, or rows and columns, 16 bits become 32 first.
  const dtype = change && !change.moveBack ? "F32" : (element.dtype ?? "F32");
  const rows = change?.together?.(config);
  const unit = change ? (rows === undefined ? count : rows * columns) : 1;
  const whole = change && unit % element.block !== 0 ? count : Math.max(unit, element.block);
  const each = dtype === "F32" ? 4 : 2;
  return { tensor, element, count, columns, unit: whole, change, dtype, each, begin };
}

class Weights implements FilePart {
  readonly name: string;
  readonly place: string;
  readonly remote: boolean;
  declare readonly here?: true;
  readonly size: number;
  readonly #file: FilePart;
  readonly #header: Uint8Array;
  readonly #entries: readonly Entry[];
  readonly #config: ModelConfig;
  /** What was made last: the next read may begin in it. */
  #made: Made | undefined;

  constructor(
    file: FilePart,
    header: Uint8Array,
    entries: readonly Entry[],
    size: number,
    config: ModelConfig,
  ) {
    [this.name, this.place, this.remote] = [file.name, file.place, file.remote];
    [this.#file, this.#header, this.#entries, this.#config] = [file, header, entries, config];
    if (file.here) this.here = true;
    this.size = header.length + size;
  }

  async read(begin: number, end: number): Promise<Uint8Array> {
    const out = new Uint8Array(end - begin);
    out.set(this.#header.subarray(begin, end));
    const data = this.#header.length;
    for (const entry of this.#entriesIn(begin - data, end - data)) {
      const last = entry.begin + entry.count * entry.each;
      const from = Math.floor((Math.max(begin - data, entry.begin) - entry.begin) / entry.each);
      const to = Math.ceil((Math.min(end - data, last) - entry.begin) / entry.each);
      const { elements } = await this.#elements(entry, from, to, false);
      const bytes = new Uint8Array(elements.buffer, elements.byteOffset, elements.byteLength);
      const place = data + entry.begin + from * entry.each - begin;
      out.set(bytes.subarray(Math.max(0, -place), end - begin - place), Math.max(0, place));
    }
    return out;
  }

  async groups(begin: number, end: number): Promise<Groups | undefined> {
    const data = this.#header.length;
    const entry = this.#entriesIn(begin - data, end - data)[0];
    if (!entry?.element.codes || (entry.change && !entry.change.moveBack)) return undefined;
    const [from, to] = [begin, end].map((at) => (at - data - entry.begin) / entry.each) as [
      number,
      number,
    ];
    const { elements, scales } = await this.#elements(entry, from, to, true);
    return { codes: elements as Int8Array, scales: scales as Float32Array };
  }

  rest(): void {
    this.#file.rest?.();
  }

  #entriesIn(begin: number, end: number): readonly Entry[] {
    return this.#entries.filter(
      (entry) => entry.begin < end && entry.begin + entry.count * entry.each > begin,
    );
  }

  /** Some elements. What an earlier read has left is not read again. */
  async #elements(entry: Entry, from: number, to: number, codes: boolean): Promise<Made> {
    const { unit, count } = entry;
    const first = Math.floor(from / unit) * unit;
    const last = Math.min(count, Math.ceil(to / unit) * unit);
    const old = this.#made;
    const same = old?.entry === entry && (old.scales !== undefined) === codes;
    const goesOn = same && old.from <= first && first < old.to;
    if (goesOn && last <= old.to) return part(old, from, to);
    const begin = goesOn ? old.to : first;
    const made = await this.#make(entry, begin, last, codes);
    this.#made = made;
    return goesOn ? joined(part(old, from, old.to), part(made, begin, to)) : part(made, from, to);
  }

  /** Makes whole units. */
  async #make(entry: Entry, from: number, to: number, codes: boolean): Promise<Made> {
    const { element, tensor, columns, change } = entry;
    const at = (index: number) => tensor.begin + (index / element.block) * element.bytes;
    const bytes = await this.#file.read(at(from), at(to));
    const blocks = new Blocks(bytes, element);
    if (codes) {
      const scales = Float32Array.from({ length: blocks.count }, (_, block) =>
        blocks.half(block * element.bytes),
      );
      const elements = new Int8Array(to - from);
      element.codes?.(blocks, elements);
      const moved = this.#back(entry, elements, columns) as Int8Array;
      // A scale moves with the group that it is of.
      return {
        entry,
        from,
        to,
        elements: moved,
        scales: this.#back(entry, scales, columns / GROUP) as Float32Array,
      };
    }
    if (entry.dtype !== "F32") {
      const elements = new Uint16Array(bytes.slice().buffer);
      return { entry, from, to, elements: this.#back(entry, elements, columns) };
    }
    const values = new Float32Array(to - from);
    element.decode(blocks, values);
    return { entry, from, to, elements: change ? this.#back(entry, values, columns) : values };
  }

  /** Rows in the order of the checkpoint, with its values. */
  #back(entry: Entry, elements: Elements, columns: number): Elements {
    const { change } = entry;
    if (!change) return elements;
    const undo = (part: Elements) =>
      change.moveBack?.(part, columns, this.#config) ??
      change.undo(part as Float32Array, columns, this.#config);
    const rows = change.together?.(this.#config);
    if (rows === undefined) return undo(elements);
    const step = rows * columns;
    for (let at = 0; at < elements.length; at += step) {
      elements.set(undo(elements.subarray(at, at + step)), at);
    }
    return elements;
  }
}

function part(made: Made, from: number, to: number): Made {
  const [begin, end] = [from - made.from, to - made.from];
  const elements = made.elements.subarray(begin, end);
  const scales = made.scales?.subarray(begin / GROUP, end / GROUP);
  return { entry: made.entry, from, to, elements, ...(scales && { scales }) };
}

function joined(a: Made, b: Made): Made {
  const join = <E extends Elements>(one: E, other: E): E => {
    const both = new (one.constructor as new (length: number) => E)(one.length + other.length);
    both.set(one);
    both.set(other, one.length);
    return both;
  };
  const elements = join(a.elements, b.elements);
  const scales = a.scales && b.scales && join(a.scales, b.scales);
  return { entry: a.entry, from: a.from, to: b.to, elements, ...(scales && { scales }) };
}
