/** A model and its trainers as they were after a whole step, in the host's memory. */

import { end } from "../handle.js";
import type {
  RawModel,
  RawModule,
  RawResume,
  RawRuntime,
  RawSnapshot,
  RawTrainer,
  RawWriter,
} from "../raw.js";
import { withRoom } from "../raw.js";
import { readAhead, tensorSizes } from "../readback.js";
import { type FilePart, pullTensors, readHeaders } from "../safetensors.js";
import type { Member } from "./member.js";

/** Bytes that are read back at a time. */
const PIECE = 8 << 20;

/** A file of tensors as `save` writes it, but for the checksums. */
export interface SnapshotFile {
  readonly header: Uint8Array;
  readonly data: Uint8Array;
}

export interface Snapshot {
  readonly weights: SnapshotFile;
  readonly trainers: ReadonlyMap<
    Member,
    {
      readonly moments: SnapshotFile;
      /** The module's part of `trainer_state.json`. */
      readonly state: string;
      /** Steps done. */
      readonly steps: number;
    }
  >;
}

/** Reads a copy back, piece by piece. */
export async function fileOf(copy: RawSnapshot): Promise<SnapshotFile> {
  const header = copy.saveHeader();
  const total = tensorSizes(header).reduce((sum, size) => sum + size, 0);
  const data = new Uint8Array(total);
  const pieces = Array.from({ length: Math.ceil(total / PIECE) }, (_, at) => at * PIECE);
  const length = (begin: number) => Math.min(PIECE, total - begin);
  let at = 0;
  for await (const bytes of readAhead(pieces.map(length), (index) => {
    const begin = pieces[index] as number;
    return copy.read(begin, begin + length(begin));
  })) {
    data.set(bytes, at);
    at += bytes.length;
  }
  return { header, data };
}

/** Writes the file again. */
export function writerOf({ header, data }: SnapshotFile): RawWriter {
  const sizes = tensorSizes(header);
  const begins: number[] = [];
  sizes.reduce((at, size) => {
    begins.push(at);
    return at + size;
  }, 0);
  return {
    saveHeader: () => header,
    tensorCount: () => sizes.length,
    readPiece: async (index, begin, stop) => {
      const first = begins[index] as number;
      return data.subarray(first + begin, first + stop);
    },
  };
}

function partOf(name: string, { header, data }: SnapshotFile): FilePart {
  const read = async (begin: number, stop: number) =>
    begin < header.length
      ? header.subarray(begin, stop)
      : data.subarray(begin - header.length, stop - header.length);
  return { name, place: name, remote: false, size: header.length + data.length, read };
}

/** The model on another raw runtime, and its trainers, as a resume makes them. */
export async function restored(
  module: RawModule,
  on: RawRuntime,
  config: string,
  { weights, trainers }: Snapshot,
  raws: Map<Member, RawTrainer>,
): Promise<RawModel> {
  const loader = new module.RawLoader(on, config);
  const resumes = new Map<Member, RawResume>();
  const seen = { sum: 0 };
  try {
    const open = await readHeaders(
      [partOf("model.safetensors", weights)],
      withRoom(module, loader, seen),
    );
    for (const [member, { moments, state }] of trainers) {
      const resume = new module.RawResume(loader, state);
      resumes.set(member, resume);
      const file = partOf("optimizer.safetensors", moments);
      open.push(...(await readHeaders([file], withRoom(module, resume, seen))));
    }
    await loader.allocate();
    for (const resume of resumes.values()) await resume.allocate(loader, () => false);
    await pullTensors(open, () => {});
    const model = await loader.finish();
    try {
      for (const [member, resume] of resumes) raws.set(member, await resume.finish());
    } catch (error) {
      end(model);
      throw error;
    }
    return model;
  } finally {
    for (const resume of resumes.values()) end(resume);
    end(loader);
  }
}
