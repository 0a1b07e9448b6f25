/** What `runs.import` is given, as the files of a run. */

import { TinyloomError } from "../error.js";
import { inspect, invalid, show } from "../options.js";
import { ADAPTER_FILES, BESIDE as BESIDE_MODEL, MODEL_FILES, STATE_FILES } from "../save-types.js";
import { stored } from "../stored-runs.js";
import { eachPiece } from "./pieces.js";
import type { RunRecord } from "./record.js";
import type { StoredRun } from "./stored-run.js";

/** Names of the files that a run may have. */
export const LOGS = ["metrics.jsonl", "samples.jsonl"] as const;
const BESIDE = ["data", "tokenizer"];
const CHECKPOINT = [...MODEL_FILES, ...BESIDE_MODEL, ...ADAPTER_FILES, ...STATE_FILES];
const FILES = ["run.json", ...BESIDE, ...LOGS, ...CHECKPOINT];

/** The files of a run that was exported, as Blobs. No other name is ever a place in the storage. */
export function blobsOf(given: unknown): { readonly [name: string]: Blob } {
  return inspect("runs.import", () => {
    if (typeof given !== "object" || given === null) {
      throw invalid(`runs.import takes what runs.export gave, not ${show(given)}`);
    }
    const files: { [name: string]: Blob } = {};
    for (const [name, content] of Object.entries(given) as [string, unknown][]) {
      if (!FILES.includes(name)) {
        const known = FILES.join(", ");
        throw invalid(`runs.import: ${show(name)} is no file of a run; a run has ${known}`);
      }
      if (content instanceof Blob) files[name] = content;
      else if (content instanceof Uint8Array || content instanceof ArrayBuffer) {
        files[name] = new Blob([content as Uint8Array<ArrayBuffer>]);
      } else {
        throw invalid(`runs.import: ${name} is ${show(content)}; give a Blob or a Uint8Array`);
      }
    }
    return files;
  });
}

/** What run.json says. */
export async function describedBy(
  file: Blob | undefined,
): Promise<Partial<RunRecord> & { name: string }> {
  if (!file) throw invalid("runs.import: there is no run.json; give what runs.export gave");
  const text = await file.text();
  let found: Partial<RunRecord> | null | undefined;
  try {
    found = JSON.parse(text) as Partial<RunRecord> | null;
  } catch {
    // refused below
  }
  const { name, options } = found ?? {};
  if (typeof name === "string") return { name, options };
  throw new TinyloomError(
    "invalid-checkpoint",
    "runs.import: run.json is damaged: it is no JSON with a name; export the run again",
  );
}

/** Writes what there is of a checkpoint into a run. */
export async function writeCheckpoint(
  run: StoredRun,
  files: { readonly [name: string]: Blob },
): Promise<void> {
  const names = CHECKPOINT.filter((name) => files[name]);
  if (names.length === 0) return;
  const blobs = names.map((name) => files[name] as Blob);
  const target = stored.of(run).target();
  try {
    await target.expect?.(blobs.reduce((sum, { size }) => sum + size, 0));
    for (const [at, blob] of blobs.entries()) {
      const out = await target.open(names[at] as string, blob.size);
      await eachPiece(blob, (bytes) => out.write(bytes));
    }
    await target.close();
  } catch (error) {
    await target.abort(error);
    throw error;
  }
}
