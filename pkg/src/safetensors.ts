/** The outer frame of a safetensors file: 8 bytes of header length, a JSON header, then the data. */

import { crc32, hex } from "./crc32.js";
import { anotherKind } from "./file-kind.js";
import { corrupt, type FilePart } from "./file-part.js";
import { show } from "./options.js";
import type { RawModule, Seen, TensorSink } from "./raw-types.js";
import { damaged, TensorSum } from "./tensor-sum.js";
import { expectRoom } from "./wasm-memory.js";

/** Bytes that state the header's length. */
export const PREFIX = 8;
/** Bytes of a tensor that are converted and uploaded at a time; a multiple of every element's. */
const PIECE = 4 << 20;
/** Bytes that the module takes for each byte of blocks at most: theirs, their codes, and words or numbers. */
const BLOCKS_ROOM = 12;
/** Milliseconds of work after which the page gets a turn. */
const TURN = 25;
/** The same of work that is to show nowhere. */
export const SHORT = 8;

/** A tensor's place in its file, in bytes from the file's start. */
export interface TensorRange {
  readonly name: string;
  readonly begin: number;
  readonly end: number;
}

/** Reads the length prefix, holds it against the file and the longest allowed, then returns the JSON header's bytes. */
export async function readHeader(file: FilePart, most: number): Promise<Uint8Array> {
  if (file.size < PREFIX) {
    throw corrupt(
      `${file.place} has ${file.size} bytes, and a safetensors file begins with an 8-byte header length; ` +
        "the file is truncated, or its buffer was transferred: give the whole file",
    );
  }
  const prefix = await file.read(0, PREFIX);
  const length = new DataView(prefix.buffer, prefix.byteOffset, PREFIX).getBigUint64(0, true);
  if (length > most) {
    const another = await anotherKind(file, "safetensors file");
    if (another) throw another;
    throw corrupt(
      `${file.place} states a header of ${length} bytes, and at most ${most} are allowed; ` +
        "this is not a safetensors file of such a model",
    );
  }
  const end = PREFIX + Number(length);
  if (end > file.size) {
    throw corrupt(
      `${file.place} states a header of ${length} bytes but has ${file.size} bytes in all; ` +
        "the file is truncated, fetch it again",
    );
  }
  return file.read(PREFIX, end);
}

/** The sink, with room made sure of before each piece, and a checksum of all that it takes in `seen`. */
export function withRoom(module: RawModule, sink: TensorSink, seen: Seen): TensorSink {
  return {
    headerLimit: () => sink.headerLimit(),
    addFile: (...file) => sink.addFile(...file),
    setPiece: (name, begin, bytes) => {
      expectRoom(module, `a piece of tensor ${name}`, bytes.length);
      sink.setPiece(name, begin, bytes);
    },
    ...(sink.setBlocks && {
      setBlocks: (name: string, start: number, type: number, bytes: Uint8Array) => {
        expectRoom(module, `a piece of tensor ${name}`, BLOCKS_ROOM * bytes.length);
        sink.setBlocks?.(name, start, type, bytes);
      },
    }),
    summed: (sum) => {
      seen.sum = crc32(new Uint8Array(Uint32Array.of(sum).buffer), seen.sum);
    },
  };
}

/** A checksum as files have it. */
export const HEX = /^[0-9a-f]{8}$/;

/** Key of the checksums in `__metadata__`: CRC-32 in hexadecimal of each tensor's bytes, in their order. */
export const CHECKSUMS = "crc32";

/** Key of the checksum of names, types, shapes and places of the tensors: of their entries as compact JSON. */
export const HEADER_CHECKSUM = "crc32_header";

/** The checksum of the entries. */
export const headerSum = (tensors: object): string =>
  hex(crc32(new TextEncoder().encode(JSON.stringify(tensors))));

/** A file whose header a sink has taken, and what it wants of it. */
export interface OpenFile {
  /** What the file says of its tensors' checksums, by name. */
  readonly sums: ReadonlyMap<string, string>;
  /** The element types of its tensors. */
  readonly dtypes: ReadonlySet<string>;
  readonly file: FilePart;
  readonly sink: TensorSink;
  readonly ranges: readonly TensorRange[];
}

/** Gives the sink the headers of the files: a wrong file is refused before anything is allocated. */
export async function readHeaders(
  files: readonly FilePart[],
  sink: TensorSink,
): Promise<OpenFile[]> {
  const open: OpenFile[] = [];
  for (const file of files) {
    try {
      const header = await readHeader(file, sink.headerLimit());
      const ranges = JSON.parse(sink.addFile(file.name, header, file.size)) as TensorRange[];
      const dtypes = new Set(parse(header).order.map(([, { dtype }]) => dtype));
      open.push({ file, sink, ranges, sums: checksums(file, header), dtypes });
    } finally {
      file.rest?.();
    }
  }
  return open;
}

/**
 * Hands the tensors to the sinks, a piece of a few megabytes at a time: neither a file nor a tensor is
 * ever whole in the module's memory. The next piece is read while one is converted. Gives the page a turn now and then.
 *
 * @param step - called before each piece with its file, the bytes done and in all; may throw to stop.
 * @param coded - whether the sink holds matrices in codes: a file's blocks are then taken as they are.
 */
export async function pullTensors(
  files: readonly OpenFile[],
  step: (file: FilePart, loaded: number, total: number) => void,
  coded = false,
): Promise<void> {
  const sizes = files.flatMap(({ ranges }) => ranges.map(({ begin, end }) => end - begin));
  const total = sizes.reduce((sum, size) => sum + size, 0);
  let loaded = 0;
  const turn = turns();
  for (const { file, sink, ranges, sums } of files) {
    const blocks = coded && sink.setBlocks !== undefined;
    const pieces = ranges.flatMap(piecesOf);
    let sum = new TensorSum(undefined);
    let coming: ReturnType<typeof read> | undefined;
    try {
      for (const [i, piece] of pieces.entries()) {
        const { name, begin, end, at, to } = piece;
        step(file, loaded, total);
        const reading = coming ?? read(file, piece, blocks);
        coming = undefined;
        const content = await reading;
        const next = file.here ? undefined : pieces[i + 1];
        coming = next && read(file, next, blocks);
        coming?.catch(() => undefined); // told when its turn comes
        if (at === begin) sum = new TensorSum(sums.get(name));
        if (content instanceof Uint8Array) {
          sum.add(content);
          sink.setPiece(name, at - begin, content);
          file.reuse?.(content);
        } else {
          sum.add(content.bytes);
          sink.setBlocks?.(name, (at - begin) / 4, content.type, content.bytes);
        }
        loaded += to - at;
        await turn();
        if (to === end) sink.summed?.(sum.end(`${file.place}: tensor ${name}`));
      }
      step(file, loaded, total);
    } finally {
      file.rest?.();
      // After a failure a piece may still be on its way. Its read may have opened the file again.
      coming?.catch(() => undefined).finally(() => file.rest?.());
    }
  }
}

/** Bytes of a tensor, from `at` to before `to` of its file. */
interface Piece extends TensorRange {
  readonly at: number;
  readonly to: number;
}

function piecesOf(range: TensorRange): Piece[] {
  const pieces: Piece[] = [];
  let at = range.begin;
  do {
    pieces.push({ ...range, at, to: Math.min(range.end, at + PIECE) });
    at += PIECE;
  } while (at < range.end);
  return pieces; // one of no bytes of a tensor without any
}

async function read(file: FilePart, { at, to }: Piece, blocks: boolean) {
  const found = blocks ? await file.blocks?.(at, to) : undefined;
  return found ?? (await file.read(at, to));
}

/** Gives the page a turn where the work has held it for long. */
export function turns(most = TURN): () => Promise<void> {
  let began = performance.now();
  return async () => {
    if (performance.now() - began < most) return;
    // Nobody waits for a hidden page, and its timers come once a second.
    if (globalThis.document?.hidden !== true) await nextTurn();
    began = performance.now();
  };
}

/** Lets the page do what waits. A timer would come 4 ms later, which adds up to seconds of a large model. */
function nextTurn(): Promise<void> {
  const { scheduler } = globalThis as { scheduler?: { yield?(): Promise<void> } };
  return scheduler?.yield?.() ?? new Promise((next) => setTimeout(next));
}

/** A header's JSON, and its tensors in the order of their data. */
export function parse(json: Uint8Array) {
  // A copy: a decoder takes no shared memory.
  const { __metadata__: metadata, ...tensors } = JSON.parse(
    new TextDecoder().decode(json.slice()),
  ) as { [name: string]: { dtype: string; shape: number[]; data_offsets: [number, number] } };
  const order = Object.entries(tensors).sort(
    ([, a], [, b]) => a.data_offsets[0] - b.data_offsets[0],
  );
  return { metadata: metadata as { [name: string]: unknown } | undefined, tensors, order };
}

/** A file's first bytes, up to its data. */
export function framed(header: object): Uint8Array {
  const json = new TextEncoder().encode(JSON.stringify(header));
  const length = Math.ceil(json.length / 8) * 8; // tensors begin at a multiple of 8
  const made = new Uint8Array(PREFIX + length).fill(0x20);
  new DataView(made.buffer).setBigUint64(0, BigInt(length), true);
  made.set(json, PREFIX);
  return made;
}

/**
 * The checksums that a header states, once its own is right. Where it has one of its own, it has one of each tensor.
 * Else it is of an earlier build, or of another program: checksums of other tensors than it has say nothing.
 */
function checksums({ place }: FilePart, header: Uint8Array): ReadonlyMap<string, string> {
  const { metadata, tensors, order } = parse(header);
  const stated = metadata?.[HEADER_CHECKSUM];
  const found = headerSum(tensors);
  if (stated !== undefined && stated !== found) {
    throw damaged(`the header of ${place}`, found, String(stated));
  }
  const list = metadata?.[CHECKSUMS];
  const sums = String(list ?? "").split(" ");
  const known = sums.length === order.length && sums.every((sum) => HEX.test(sum));
  if (stated !== undefined && !known && order.length > 0) {
    throw corrupt(
      `${place}: ${CHECKSUMS} of __metadata__ is ${show(list)}, and has to be ${order.length} checksums of 8 ` +
        "hexadecimal digits; the file is damaged",
    );
  }
  return new Map(known ? order.map(([name], at) => [name, sums[at] as string]) : []);
}
