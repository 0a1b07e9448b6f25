/** Writes a checkpoint with an adapter added, as the checkpoint is read: neither is ever whole in memory. */

import type { MergeOptions } from "./adapter-types.js";
import { readText, weightFiles } from "./checkpoint-files.js";
import { inDtype, save } from "./checkpoint-writer.js";
import { crc32, hex } from "./crc32.js";
import { throwIfAborted } from "./error.js";
import { CONFIG_BYTES, corrupt, type FilePart } from "./file-part.js";
import { openSource } from "./file-source.js";
import type { InnerAdapter } from "./internal.js";
import type { ModelFiles } from "./model-types.js";
import { floats, NUMBERS } from "./numbers.js";
import { LOAD } from "./progress.js";
import { dispose } from "./raw-handle.js";
import type { RawModel, RawWriter } from "./raw-types.js";
import { tensorSizes } from "./readback.js";
import { framed, PREFIX, parse, readHeader, readHeaders, SHORT, turns } from "./safetensors.js";
import { DTYPE, saveOptions } from "./save-options.js";
import { MODEL_FILES } from "./save-types.js";
import { damaged } from "./tensor-sum.js";
import { transpose } from "./transpose.js";

/** A tensor of the checkpoint. */
interface Stored {
  readonly name: string;
  readonly shape: readonly number[];
  readonly dtype: string;
  readonly file: FilePart;
  /** Its first byte in the file, and the first after it. */
  readonly begin: number;
  readonly end: number;
  /** Its CRC-32 as the file states it. */
  readonly stated: string | undefined;
}

/** Numbers of a matrix that are changed between two looks at the clock. */
const PART = 1 << 16;

/** What is added to a matrix: scale · B·A. */
interface LowRank {
  readonly a: Float32Array;
  readonly b: Float32Array;
  readonly rank: number;
  readonly scale: number;
}

interface Entry {
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly data_offsets: readonly [number, number];
}

/** {@link Adapter.saveMerged}. */
export async function saveMerged(
  { base, handle }: InnerAdapter,
  source: unknown,
  options: MergeOptions,
): Promise<ModelFiles | undefined> {
  const chosen = saveOptions(options, MODEL_FILES, { ...LOAD, ...DTYPE });
  const files = openSource("saveMerged", source, chosen);
  return handle.run(async (raw) => {
    const under = base.handle.raw;
    const checker = under.checker(await readText(files, "config.json", CONFIG_BYTES));
    let parts: readonly FilePart[] = [];
    try {
      parts = await weightFiles(files);
      const open = await readHeaders(parts, checker);
      throwIfAborted(chosen.signal, "save");
      await checker.allocate(); // refuses a checkpoint that lacks a tensor
      const stored: Stored[] = [];
      for (const { file, ranges, sums } of open) {
        const header = await readHeader(file, checker.headerLimit());
        const entries = parse(header).order as unknown as [string, Entry][];
        // By their places: the file's names may be others.
        const from = PREFIX + header.length;
        const at = new Map(entries.map((one) => [from + one[1].data_offsets[0], one]));
        for (const { name, begin, end } of ranges) {
          const [own, { dtype, shape }] = at.get(begin) as [string, Entry];
          stored.push({ name, shape, dtype, file, begin, end, stated: sums.get(own) });
        }
      }
      const weights = new Merged(stored, await lowRanks(raw, under.hasInputsFirst()));
      const { generation, dtype } = base.notes;
      const saved = { names: MODEL_FILES, config: under.config(), weights, generation };
      return await save(chosen, inDtype(saved, chosen.dtype ?? dtype));
    } finally {
      for (const part of parts) part.rest?.();
      dispose(checker);
    }
  }, chosen.signal);
}

/**
 * The adapter's products, by the names of the matrices that they are added to. Rows of B are in the order of the
 * checkpoint's rows, head by head too.
 *
 * @param inputsFirst - whether the checkpoint has matrices as [in, out]: Aᵀ·Bᵀ is added to these.
 */
async function lowRanks(
  raw: RawModel,
  inputsFirst: boolean,
): Promise<ReadonlyMap<string, LowRank>> {
  const { rank, alpha, rsLora } = JSON.parse(raw.adapterOptions());
  const scale = alpha / (rsLora ? Math.sqrt(rank) : rank);
  const header = raw.saveHeader();
  const sizes = tensorSizes(header);
  const values = new Map<string, Float32Array>();
  for (const [index, [name]] of parse(header.subarray(PREFIX)).order.entries()) {
    const bytes = await raw.readPiece(index, 0, sizes[index] as number);
    values.set(name, floats(bytes));
  }
  const found = new Map<string, LowRank>();
  for (const [name, a] of values) {
    const module = name.match(/^base_model\.model\.(.*)\.lora_A\.weight$/)?.[1];
    const b = values.get(name.replace(".lora_A.", ".lora_B."));
    if (!module || !b) continue;
    const low = inputsFirst
      ? { a: transpose(b, rank), b: transpose(a, a.length / rank) }
      : { a, b };
    found.set(`${module}.weight`, { ...low, rank, scale });
  }
  return found;
}

/** The merged checkpoint, in F32 and in the order of its files. */
class Merged implements RawWriter {
  readonly #stored: readonly Stored[];
  readonly #added: ReadonlyMap<string, LowRank>;
  /** One read after the other: a file is cheapest forward. */
  #last: Promise<unknown> = Promise.resolve();
  readonly #turn = turns(SHORT);
  /** CRC-32 of the tensor that is being read, up to the last piece. */
  #sum = 0;

  constructor(stored: readonly Stored[], added: ReadonlyMap<string, LowRank>) {
    this.#stored = stored;
    this.#added = added;
  }

  tensorCount(): number {
    return this.#stored.length;
  }

  saveHeader(): Uint8Array {
    let at = 0;
    const entries = this.#stored.map(({ name, shape }) => {
      const begin = at;
      at += 4 * shape.reduce((product, n) => product * n, 1);
      return [name, { dtype: "F32", shape, data_offsets: [begin, at] }] as const;
    });
    return framed({ __metadata__: { format: "pt" }, ...Object.fromEntries(entries) });
  }

  readPiece(index: number, begin: number, end: number): Promise<Uint8Array> {
    const read = this.#last.then(async () => {
      await this.#turn();
      return this.#read(this.#stored[index] as Stored, begin / 4, end / 4);
    });
    this.#last = read.catch(() => undefined);
    return read;
  }

  async #read(tensor: Stored, first: number, last: number) {
    const { name, shape, dtype, file, begin, end, stated } = tensor;
    const size = dtype === "F32" ? 4 : 2;
    const to = begin + size * last;
    const bytes = await file.read(begin + size * first, to);
    if (stated) {
      // Every pass reads a tensor from its beginning to its end.
      this.#sum = crc32(bytes, first === 0 ? 0 : this.#sum);
      const found = hex(this.#sum);
      if (to === end && found !== stated)
        throw damaged(`${file.place}: tensor ${name}`, found, stated);
    }
    const values = (NUMBERS[dtype] as (bytes: Uint8Array) => Float32Array)(bytes);
    expectFinite(tensor, first, values);
    const low = this.#added.get(name);
    for (let at = 0; low && at < values.length; at += PART) {
      add(values.subarray(at, at + PART), first + at, shape[1] as number, low);
      await this.#turn();
    }
    return new Uint8Array(values.buffer);
  }
}

/** Refuses elements of a tensor, from element `first` on, that loading would refuse. */
function expectFinite({ name, shape, file }: Stored, first: number, values: Float32Array): void {
  let found = 0;
  while (found < values.length && Number.isFinite(values[found])) found += 1;
  if (found === values.length) return;
  let left = first + found;
  const index = [...shape].reverse().map((length) => {
    const at = left % length;
    left = (left - at) / length;
    return at;
  });
  throw corrupt(
    `tensor ${name} of ${file.place} has ${values[found]} at [${index.reverse().join(", ")}], and a weight has to ` +
      "be finite; the file is damaged, or from a run that diverged: use another",
  );
}

/** Adds the product to elements of a matrix of `columns` columns, from element `first` on. Sums are f64. */
function add(
  values: Float32Array,
  first: number,
  columns: number,
  { a, b, rank, scale }: LowRank,
): void {
  const sums = new Float64Array(columns);
  for (let at = 0; at < values.length; ) {
    const row = Math.floor((first + at) / columns);
    const from = first + at - row * columns;
    const count = Math.min(columns - from, values.length - at);
    sums.fill(0);
    for (let r = 0; r < rank; r++) {
      const factor = b[row * rank + r] as number;
      const of = r * columns + from;
      for (let i = 0; i < count; i++)
        sums[i] = (sums[i] as number) + factor * (a[of + i] as number);
    }
    for (let i = 0; i < count; i++) {
      values[at + i] = (values[at + i] as number) + scale * (sums[i] as number);
    }
    at += count;
  }
}
