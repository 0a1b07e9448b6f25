/**
 * Runs that stay: checkpoints on the origin-private file system of a browser, or in a folder. Every file has
 * checksums, and a checkpoint counts only once it is whole.
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
