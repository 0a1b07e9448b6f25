/** The description of a run, and what lies beside it: written so that a failure leaves what was there before. */

import type { Disk, Path } from "./disk.js";
import { readRecord, Summing, type Sums, writeRecord } from "./disk.js";
import { eachPiece } from "./pieces.js";

/** A stored file of the caller's: where it lies, and its checksums. */
export interface StoredFile extends Sums {
  readonly file: string;
}

/** The caller's files of a run, by what they are. */
export interface StoredFiles {
  readonly data?: StoredFile;
  readonly tokenizer?: StoredFile;
}

/** What is written of a run beside its checkpoints. */
export interface RunRecord {
  readonly format: 1;
  readonly name: string;
  /** Milliseconds since 1970. */
  readonly created: number;
  readonly options: unknown;
  readonly files: StoredFiles;
}

const RECORD = /^run-(\d+)\.json$/;
/** A file of the caller's; the number counts its updates. */
const CONTENT = /^(data|tokenizer)(?:-(\d+))?$/;

/** Names of the descriptions among those of a run's folder, with their numbers, the newest first. */
export function descriptionsOf(names: readonly string[]): { name: string; number: number }[] {
  const found = names.flatMap((name) => {
    const [, number] = RECORD.exec(name) ?? [];
    return number === undefined ? [] : [{ name, number: Number(number) }];
  });
  return found.sort((a, b) => b.number - a.number);
}

/** The newest description of a run that is whole. */
export async function descriptionOf(disk: Disk, id: string): Promise<RunRecord | undefined> {
  for (const { name } of descriptionsOf(await disk.names([id]))) {
    const record = await readRecord<RunRecord>(disk, [id, name]);
    if (record) return record;
  }
  return undefined;
}

/** Writes a description beside the old ones, which stay where this fails. */
export async function describe(disk: Disk, id: string, record: RunRecord): Promise<void> {
  const old = descriptionsOf(await disk.names([id]));
  const last = old[0]?.number ?? 0;
  // Two copies, so that a damaged one is no loss.
  const written = [last + 1, last + 2].map((number): Path => [id, `run-${number}.json`]);
  try {
    for (const path of written) await writeRecord(disk, path, record);
  } catch (error) {
    for (const path of written) await disk.remove(path).catch(() => undefined);
    throw error;
  }
  for (const { name } of old) await disk.remove([id, name]);
}

/** Writes a Blob as a file; gives its checksums. */
export async function copy(disk: Disk, blob: Blob, path: Path): Promise<Sums> {
  const summing = new Summing();
  const file = await disk.create(path);
  let at = 0;
  try {
    await eachPiece(blob, async (bytes) => {
      summing.add(bytes);
      await file.write(bytes, at);
      at += bytes.length;
    });
    await file.flush();
  } finally {
    await file.close();
  }
  return summing.sums;
}

/**
 * Puts other files of the caller's, and other fields, into a run's description. Until the description is written, the
 * run is as it was; from then on it has all of the change.
 *
 * @returns the description that is written.
 */
export async function updated(
  disk: Disk,
  id: string,
  before: RunRecord,
  { content, ...fields }: { readonly content: Contents; readonly options?: unknown },
): Promise<RunRecord> {
  const files: { data?: StoredFile; tokenizer?: StoredFile } = { ...before.files };
  const made: Path[] = [];
  try {
    for (const [kind, blob] of Object.entries(content) as [keyof StoredFiles, Blob][]) {
      const [, , number = "1"] = CONTENT.exec(before.files[kind]?.file ?? "") ?? [];
      const file = before.files[kind] ? `${kind}-${Number(number) + 1}` : kind;
      made.push([id, file]);
      files[kind] = { file, ...(await copy(disk, blob, [id, file])) };
    }
    const record = { ...before, ...fields, files };
    await describe(disk, id, record);
    await tidy(disk, id, record).catch(() => undefined); // what is left is tidied by the next update
    return record;
  } catch (error) {
    for (const path of made) await disk.remove(path).catch(() => undefined);
    throw error;
  }
}

/** What the caller gives, by what it is. */
export type Contents = { readonly [K in keyof StoredFiles]?: Blob };

/** Removes files of the caller's that the description does not name. */
async function tidy(disk: Disk, id: string, { files }: RunRecord): Promise<void> {
  const named = Object.values(files).map(({ file }: StoredFile) => file);
  for (const name of await disk.names([id])) {
    if (CONTENT.test(name) && !named.includes(name)) await disk.remove([id, name]);
  }
}
