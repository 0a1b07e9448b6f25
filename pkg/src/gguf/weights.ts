/** The weights of a GGUF file as a safetensors file would have them, made while they are read. */

import { corrupt, type FilePart, type Blocks as PlainBlocks } from "../file-part.js";
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
  /** The elements, or the bytes of their blocks. */
  readonly elements: Elements;
  readonly blocks: boolean;
}

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

  async blocks(begin: number, end: number): Promise<PlainBlocks | undefined> {
    const data = this.#header.length;
    const entry = this.#entriesIn(begin - data, end - data)[0];
    if (!entry?.element.plain || (entry.change && !entry.change.moveBack)) return undefined;
    const [from, to] = [begin, end].map((at) => (at - data - entry.begin) / entry.each) as [
      number,
      number,
    ];
    const { elements } = await this.#elements(entry, from, to, true);
    return { type: entry.tensor.element, bytes: elements as Uint8Array };
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
  async #elements(entry: Entry, from: number, to: number, blocks: boolean): Promise<Made> {
    const { unit, count } = entry;
    const first = Math.floor(from / unit) * unit;
    const last = Math.min(count, Math.ceil(to / unit) * unit);
    const old = this.#made;
    const same = old?.entry === entry && old.blocks === blocks;
    const goesOn = same && old.from <= first && first < old.to;
    if (goesOn && last <= old.to) return part(old, from, to);
    const begin = goesOn ? old.to : first;
    const made = await this.#make(entry, begin, last, blocks);
    this.#made = made;
    return goesOn ? joined(part(old, from, old.to), part(made, begin, to)) : part(made, from, to);
  }

  /** Makes whole units. */
  async #make(entry: Entry, from: number, to: number, asBlocks: boolean): Promise<Made> {
    const { element, tensor, columns } = entry;
    const at = (index: number) => tensor.begin + (index / element.block) * element.bytes;
    const bytes = await this.#file.read(at(from), at(to));
    const made = { entry, from, to, blocks: asBlocks };
    if (asBlocks) {
      // Rows that change places are whole blocks. The bytes may be the caller's own: they stay as they are.
      const blocks = entry.change ? bytes.slice() : bytes;
      return { ...made, elements: this.#back(entry, blocks, columns * each(made)) };
    }
    if (entry.dtype !== "F32") {
      const elements = new Uint16Array(bytes.slice().buffer);
      return { ...made, elements: this.#back(entry, elements, columns) };
    }
    const values = new Float32Array(to - from);
    element.decode(new Blocks(bytes, element), values);
    return { ...made, elements: this.#back(entry, values, columns) };
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

/** Entries of the array for each element: bytes, where it has blocks. */
const each = ({ entry: { element }, blocks }: Pick<Made, "entry" | "blocks">): number =>
  blocks ? element.bytes / element.block : 1;

function part(made: Made, from: number, to: number): Made {
  const [begin, end] = [from - made.from, to - made.from].map((at) => at * each(made));
  return { ...made, from, to, elements: made.elements.subarray(begin, end) };
}

function joined(a: Made, b: Made): Made {
  const [one, other] = [a.elements, b.elements];
  const elements = new (one.constructor as new (length: number) => Elements)(
    one.length + other.length,
  );
  elements.set(one);
  elements.set(other, one.length);
  return { ...a, to: b.to, elements };
}
