// A Node process with Dawn that runs the cases of tinyloom/storage on a folder.
import { existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as tinyloom from "tinyloom";
import * as storage from "tinyloom/storage";
import { create } from "webgpu";
import { runStorage } from "./bodies/storage.mjs";
import { folderDisk } from "./folder-disk.mjs";

const root = mkdtempSync(join(tmpdir(), "tinyloom-storage-"));
const open = (name) =>
  storage.Runs.open(name, typeof name === "string" ? { folder: join(root, name) } : {});
const gpu = create([]);
const context = {
  tinyloom: { ...tinyloom, ...storage },
  options: { gpu },
  open,
  disk: folderDisk(root),
  where: "folder",
};
const results = await runStorage(context);
const left = existsSync(root)
  ? readdirSync(root).flatMap((app) => readdirSync(join(root, app)))
  : [];
rmSync(root, { recursive: true, force: true });
await new Promise((sent) => process.send({ results, left }, sent));
process.exit(0); // Dawn's threads would keep the process alive
