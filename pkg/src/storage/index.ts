/**
 * Runs that outlive their page: checkpoints in the browser's origin-private file system, or in a folder. Every file has a
 * checksum. A checkpoint counts only once all of its files are written.
 *
 * @module tinyloom/storage
 */

export { TinyloomError } from "../error.js";
export type { StoredCheckpoint } from "./checkpoint.js";
export type { Where } from "./disk.js";
export { Runs } from "./runs.js";
export { type NotedMetrics, type Sample, StoredRun } from "./stored-run.js";
export type { RunContent, RunFiles, RunSummary, RunsOptions } from "./types.js";
export { zip } from "./zip.js";
