/** Writes a checkpoint's files as they are read back: into memory, a directory, or streams. */

import { crc32 } from "./crc32.js";
import { TinyloomError, throwIfAborted, toError } from "./error.js";
import type { GgufFile } from "./gguf/index.js";
import { ggufPart } from "./lazy.js";
import modeling from "./modeling-source.js";
import { configIn, narrowed } from "./narrow.js";
import { type Dtype, GENERATION_FILE, generationOf, type ModelNotes } from "./notes.js";
import { BASE_NAME } from "./peft-files.js";
import { type LongOptions, report, reported } from "./progress.js";
import { unrepeatable } from "./raw-handle.js";
import type { RawModel, RawWriter } from "./raw-types.js";
import { readAhead, tensorSizes, withChecksums } from "./readback.js";
import { SHORT, turns } from "./safetensors.js";
import { isDirectory } from "./save-options.js";
import type { Keeping, Piece, TakePiece } from "./save-types.js";
import {
  GGUF_FILES,
  MODELING_FILE,
  type ModelSaveOptions,
  type Out,
  type SaveOptions,
  STATE_FILES,
  type Target,
  type TrainerSaveOptions,
} from "./save-types.js";
import { stored } from "./stored-runs.js";
import { openStreams } from "./stream-target.js";
import { type AddedState, stateText } from "./trainer-state.js";

/** Bytes of a tensor that are read back, summed and written at a time: a few milliseconds of work. */
const PIECE = 1 << 20;

/** What a trainer's save reads. */
export interface SavedTrainer {
  readonly moments: RawWriter;
  /** The module's part of the state. */
  state(): Promise<string>;
  readonly added: AddedState;
  /** Of a checkpoint in a run. */
  readonly keeping?: Keeping | undefined;
}

/** A model, or an adapter. */
export interface SavedWeights {
  /** Names of config and weights. */
  readonly names: readonly string[];
  readonly config: string;
  readonly weights: RawWriter;
  /** The text of `generation_config.json`, if there is one. */
  readonly generation?: string | undefined;
}

/**
 * Saves a model or an adapter in the format that is asked for; the caller has the queue.
 *
 * @param adapted - whether there are adapters on the model.
 */
export function saveWeights<T>(
  options: ModelSaveOptions,
  { names, notes }: { readonly names: readonly string[]; readonly notes: ModelNotes },
  weights: RawModel,
  adapted = false,
): Promise<T> {
  const config = configWithBase(weights.config(), notes);
  const saved = { names, config, weights, generation: notes.generation };
  return options.format === "gguf"
    ? saveGguf(options, saved, adapted)
    : save(options, inDtype(saved, options.dtype ?? notes.dtype));
}

/** The config of an adapter with what names the model under it. */
export function configWithBase(config: string, { base }: ModelNotes): string {
  if (base === undefined) return config;
  return `${JSON.stringify({ ...JSON.parse(config), [BASE_NAME]: base }, undefined, 2)}\n`;
}

/** The same, with weights of that type. */
export function inDtype(saved: SavedWeights, dtype: Dtype): SavedWeights {
  if (dtype === "f32") return saved;
  const { config, weights } = saved;
  return { ...saved, config: configIn(dtype, config), weights: narrowed(weights, dtype) };
}

/** Saves a model as one file for llama.cpp. */
async function saveGguf<T>(
  options: ModelSaveOptions,
  { config, weights }: SavedWeights & { readonly weights: RawModel },
  adapted: boolean,
): Promise<T> {
  const { ggufOf } = await ggufPart();
  const file = await ggufOf(options, config, weights, adapted);
  const write = (files: Files) => files.gguf(GGUF_FILES[0] as string, file, weights);
  return saving<T>(options, GGUF_FILES, write, { expected: file.size });
}

/** Saves a model or an adapter, and with it a trainer; the caller has the queue. */
export function save<T>(
  options: TrainerSaveOptions,
  { names: own, config, weights, generation: kept }: SavedWeights,
  trainer?: SavedTrainer,
): Promise<T> {
  if (options.good) throw noGood();
  const generation = generationFor(options, kept);
  const beside = Object.entries({
    [GENERATION_FILE]: generation,
    [MODELING_FILE]: modelingFor(options, config),
  }).filter((one): one is [string, string] => one[1] !== undefined);
  const files = trainer ? [...own, ...STATE_FILES] : own;
  const names = [...beside.map(([name]) => name), ...files];
  const write = async (out: Files) => {
    const [ofConfig, ofWeights, ofMoments, ofState] = files as [string, string, string, string];
    await out.text(ofConfig, config);
    for (const [name, text] of beside) await out.text(name, text);
    await out.tensors(ofWeights, weights);
    if (!trainer) return;
    await out.tensors(ofMoments, trainer.moments);
    await out.text(ofState, stateText(await trainer.state(), config, trainer.added));
  };
  const writers = trainer ? [weights, trainer.moments] : [weights];
  return saving<T>(options, names, write, { ...trainer, expected: bytesOf(...writers) });
}

/** What is written as `generation_config.json`: of the caller's own streams one has to be there for it. */
function generationFor({ to }: SaveOptions, kept: string | undefined): string | undefined {
  if (to === undefined || stored.find(to) || isDirectory(to)) return kept;
  return (to as { [name: string]: unknown })[GENERATION_FILE]
    ? (kept ?? generationOf([]))
    : undefined;
}

/** The file with which transformers computes a model whose layers say what they are; a stream has to be there for it. */
function modelingFor({ to }: SaveOptions, config: string): string | undefined {
  if (JSON.parse(config).model_type !== "tinyloom") return undefined;
  const takes = to === undefined || stored.find(to) || isDirectory(to);
  return takes || (to as { [name: string]: unknown })[MODELING_FILE] ? modeling : undefined;
}

/** There are no good weights to be saved. */
export function noGood(): TinyloomError {
  return new TinyloomError(
    "invalid-options",
    "save: good is true, and there is no snapshot of good weights: the first one is taken about a second after a " +
      "trainer's first step, and none where snapshots are off; go back to files saved earlier, or to a new model",
  );
}

/** The files of one save, to be written one after the other. */
class Files {
  readonly #options: LongOptions;
  readonly #target: Target;

  constructor(options: LongOptions, target: Target) {
    this.#options = options;
    this.#target = target;
  }

  /** A small file. */
  async text(name: string, text: string): Promise<void> {
    const bytes = new TextEncoder().encode(text);
    const out = await this.#target.open(name, bytes.length);
    await out.write(bytes);
  }

  /**
   * A safetensors file, in pieces: neither it nor a tensor is ever whole in the module's memory. Its header
   * has the tensors' checksums, and is therefore written again at the end. Where the target cannot do that,
   * the tensors are read back twice.
   */
  async tensors(name: string, writer: RawWriter): Promise<void> {
    const plain = writer.saveHeader();
    const sizes = tensorSizes(plain);
    const promised = `the header of ${sizes.length} tensors`;
    if (writer.tensorCount() !== sizes.length) {
      throw new TinyloomError("internal", `${writer.tensorCount()} tensors against ${promised}`);
    }
    const sums = sizes.map(() => 0);
    const header = () => withChecksums(plain, sums);
    const total = sizes.reduce((sum, size) => sum + size, header().length);
    const out = await this.#target.open(name, total);
    const pass = (put: (bytes: Uint8Array) => Promise<void> | void) =>
      this.#pass(name, writer, sizes, (bytes, index, begin) => {
        sums[index] = crc32(bytes, begin === 0 ? 0 : sums[index]);
        return put(bytes);
      });
    if (!out.rewrite) await pass(() => {});
    await out.write(header());
    await pass((bytes) => out.write(bytes));
    await out.rewrite?.(header());
  }

  /** A file of llama.cpp's. */
  async gguf(name: string, file: GgufFile, writer: RawWriter): Promise<void> {
    const out = await this.#target.open(name, file.size);
    const read = (pieces: readonly Piece[], take: TakePiece) =>
      this.#read(name, writer, pieces, take);
    await file.write(read, (bytes) => out.write(bytes));
  }

  /** Reads every tensor back once, in order. */
  #pass(
    name: string,
    writer: RawWriter,
    sizes: readonly number[],
    put: (bytes: Uint8Array, index: number, begin: number) => Promise<void> | void,
  ): Promise<void> {
    const pieces = sizes.flatMap((size, index) => cut(size).map((range) => ({ index, ...range })));
    return this.#read(name, writer, pieces, (bytes, at) => {
      const { index, begin } = pieces[at] as Piece;
      return put(bytes, index, begin);
    });
  }

  /** Reads pieces of tensors back, in order. */
  async #read(
    name: string,
    writer: RawWriter,
    pieces: readonly Piece[],
    take: TakePiece,
  ): Promise<void> {
    const lengths = pieces.map(({ begin, end }) => end - begin);
    const total = lengths.reduce((sum, length) => sum + length, 0);
    let loaded = 0;
    const read = (at: number) => {
      const { index, begin, end } = pieces[at] as Piece;
      return writer.readPiece(index, begin, end);
    };
    let at = 0;
    const turn = turns(SHORT);
    for await (const bytes of readAhead(lengths, read)) {
      const { index, begin } = pieces[at] as Piece;
      if (bytes.length !== lengths[at]) {
        const what = `${bytes.length} bytes of tensor ${index} from ${begin} on, not ${lengths[at]}`;
        throw new TinyloomError("internal", what);
      }
      throwIfAborted(this.#options.signal, "save");
      report(this.#options, { loaded, total, stage: `read ${name}` });
      await take(bytes, at);
      loaded += bytes.length;
      at += 1;
      await turn();
    }
    report(this.#options, { loaded, total, stage: `read ${name}` });
    await reported(this.#options);
  }
}

/** The pieces of a tensor, of `size` bytes. */
function cut(size: number): { begin: number; end: number }[] {
  return Array.from({ length: Math.ceil(size / PIECE) }, (_, at) => ({
    begin: at * PIECE,
    end: Math.min(size, (at + 1) * PIECE),
  }));
}

/** Bytes of the tensors that these write. */
export function bytesOf(...writers: RawWriter[]): number {
  const sizes = writers.flatMap((writer) => tensorSizes(writer.saveHeader()));
  return sizes.reduce((sum, size) => sum + size, 0);
}

/**
 * Runs a save; gives the files where they are wanted as bytes.
 *
 * @param saved - `expected`: bytes of all tensors. `keeping`: of a checkpoint in a run.
 */
async function saving<T>(
  options: SaveOptions,
  names: readonly string[],
  write: (files: Files) => Promise<void>,
  { expected, keeping }: Partial<SavedTrainer> & { expected: number },
): Promise<T> {
  const { to, signal } = options;
  const memory = new Memory();
  const run = stored.find(to)?.target(keeping);
  const target: Target =
    to === undefined ? memory : (run ?? (await openStreams(to, names, signal)));
  try {
    await target.expect?.(expected);
    await write(new Files(options, target));
    await target.close();
  } catch (cause) {
    await target.abort(cause);
    const error = toError(cause);
    // Streams that were aborted take nothing more.
    if (to !== undefined && !run && !isDirectory(to)) unrepeatable.add(error);
    throw error;
  }
  return (to === undefined ? memory.files : undefined) as T;
}

class Memory implements Target {
  readonly files: { [name: string]: Uint8Array<ArrayBuffer> } = {};

  open(name: string, size: number): Out {
    const file = allocate(size);
    this.files[name] = file;
    let at = 0;
    return {
      write(bytes) {
        file.set(bytes, at);
        at += bytes.length;
      },
      rewrite: (bytes) => file.set(bytes),
    };
  }

  async close(): Promise<void> {}
  async abort(): Promise<void> {}
}

/** An array of this number of bytes, or code "out-of-memory". */
function allocate(bytes: number): Uint8Array<ArrayBuffer> {
  try {
    return new Uint8Array(bytes);
  } catch (cause) {
    const message =
      `a file of ${bytes} bytes is more than this page can hold in one piece; ` +
      "give save({ to }) a directory or streams";
    throw new TinyloomError("out-of-memory", message, { cause });
  }
}
