/** A snapshot: a model and its trainers as they were after a whole step, in the host's memory or in a stored run. */

import { TinyloomError } from "../error.js";
import type { FilePart } from "../file-part.js";
import { show } from "../options.js";
import { dispose } from "../raw-handle.js";
import type {
  RawLoader,
  RawModel,
  RawModule,
  RawResume,
  RawRuntime,
  RawSnapshot,
  RawTrainer,
  RawWriter,
} from "../raw-types.js";
import { readAhead, tensorSizes } from "../readback.js";
import { pullTensors, readHeaders, withRoom } from "../safetensors.js";
import { MODEL_FILES, type RunHandle, STATE_FILES } from "../save-types.js";
import { stored } from "../stored-runs.js";
import type { RecoveredTrainer } from "./action-log.js";
import type { Origin } from "./origin.js";

/**
 * Bytes that are read back at a time: staging buffers of up to a mebibyte are used again, and larger ones would
 * leave holes in the module's memory. So many bytes are on their way at once.
 */
const [PIECE, AHEAD] = [1 << 20, 8 << 20];

/** A file of tensors as `save` writes it, but for the checksums. */
export interface SnapshotFile {
  readonly header: Uint8Array;
  readonly data: Uint8Array;
}

export interface Snapshot {
  /** The model's, as JSON. */
  readonly config: string;
  readonly weights: SnapshotFile;
  readonly trainers: ReadonlyMap<RecoveredTrainer, SnapshotOfTrainer>;
}

export interface SnapshotOfTrainer {
  readonly moments: SnapshotFile;
  /** The module's part of `trainer_state.json`. */
  readonly state: string;
  /** Steps done. */
  readonly steps: number;
}

/** A checkpoint of a run in storage that serves as snapshot, of a model with one trainer. */
export interface StoredSnapshot {
  readonly config: string;
  readonly run: RunHandle;
  readonly number: number;
  readonly trainer: RecoveredTrainer;
  readonly steps: number;
}

/** Reads a copy back, piece by piece. */
export async function fileOf(copy: RawSnapshot): Promise<SnapshotFile> {
  const header = copy.saveHeader();
  const total = tensorSizes(header).reduce((sum, size) => sum + size, 0);
  const data = new Uint8Array(total);
  const pieces = Array.from({ length: Math.ceil(total / PIECE) }, (_, at) => at * PIECE);
  const length = (begin: number) => Math.min(PIECE, total - begin);
  let at = 0;
  const read = (index: number) => {
    const begin = pieces[index] as number;
    return copy.read(begin, begin + length(begin));
  };
  for await (const bytes of readAhead(pieces.map(length), read, AHEAD)) {
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
  const size = header.length + data.length;
  return { name, place: name, remote: false, here: true, size, read };
}

/** An adapter's tensors, to be taken by a loader again. */
export async function loadAgain(
  module: RawModule,
  loader: RawLoader,
  weights: SnapshotFile,
): Promise<RawModel> {
  try {
    const sink = withRoom(module, loader, { sum: 0 });
    const open = await readHeaders([partOf("adapter_model.safetensors", weights)], sink);
    await pullTensors(open, () => {});
    return await loader.finish();
  } finally {
    dispose(loader);
  }
}

/** What a model is restored from. */
interface Parts {
  readonly weights: FilePart;
  readonly trainers: readonly { trainer: RecoveredTrainer; moments: FilePart; state: string }[];
}

function inMemory({ weights, trainers }: Snapshot): Parts {
  return {
    weights: partOf("model.safetensors", weights),
    trainers: [...trainers].map(([trainer, { moments, state }]) => {
      return { trainer, moments: partOf("optimizer.safetensors", moments), state };
    }),
  };
}

async function inRun(
  { run, number, trainer }: StoredSnapshot,
  names: readonly string[],
): Promise<Parts> {
  const source = stored.of(run).source(number);
  const file = async (name: string) => {
    const found = await source.find(name);
    if (found) return found;
    const gone = `checkpoint ${number} of the run ${show(run.name)} is gone, and with it ${name}`;
    throw new TinyloomError("invalid-checkpoint", gone);
  };
  const [weights, moments, state] = (await Promise.all(
    [names[1] as string, ...STATE_FILES].map(file),
  )) as [FilePart, FilePart, FilePart];
  const text = new TextDecoder().decode(await state.read(0, state.size));
  return { weights, trainers: [{ trainer, moments, state: text }] };
}

/** The model on another raw runtime, and its trainers, as a resume makes them. */
export async function restored(
  module: RawModule,
  on: RawRuntime,
  snapshot: Snapshot | StoredSnapshot,
  raws: Map<RecoveredTrainer, RawTrainer>,
  origin: Origin,
): Promise<RawModel> {
  const names = origin.adapted?.names ?? MODEL_FILES;
  const { weights, trainers } =
    "run" in snapshot ? await inRun(snapshot, names) : inMemory(snapshot);
  const loader =
    (await origin.adapted?.loader(snapshot.config)) ?? new module.RawLoader(on, snapshot.config);
  const resumes = new Map<RecoveredTrainer, RawResume>();
  const seen = { sum: 0 };
  try {
    const open = await readHeaders([weights], withRoom(module, loader, seen));
    for (const { trainer, moments, state } of trainers) {
      // What is under an adapter came back too, as it is now.
      const text = origin.adapted
        ? JSON.stringify({ ...JSON.parse(state), base: undefined })
        : state;
      const resume = new module.RawResume(loader, text);
      resumes.set(trainer, resume);
      open.push(...(await readHeaders([moments], withRoom(module, resume, seen))));
    }
    await loader.allocate();
    for (const resume of resumes.values()) await resume.allocate(loader, () => false);
    await pullTensors(open, () => {});
    const model = await loader.finish();
    try {
      for (const [trainer, resume] of resumes) raws.set(trainer, await resume.finish());
    } catch (error) {
      dispose(model);
      throw error;
    }
    return model;
  } finally {
    for (const resume of resumes.values()) dispose(resume);
    dispose(loader);
  }
}
