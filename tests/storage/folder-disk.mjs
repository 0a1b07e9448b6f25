// A folder of runs as the storage's cases damage it, in Node.
import { mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";

/** The files below `root`, by the name of the app and their path. */
export const folderDisk = (root) => ({
  async list(app) {
    const all = readdirSync(join(root, app), { recursive: true });
    return all
      .filter((path) => statSync(join(root, app, path)).isFile())
      .map((path) => path.replaceAll("\\", "/"));
  },
  read: async (app, path) => new Uint8Array(readFileSync(join(root, app, path))),
  write: async (app, path, bytes) => writeFileSync(join(root, app, path), bytes),
  remove: async (app, path) => rmSync(join(root, app, path), { recursive: true }),
  folder: async (app, path) => mkdirSync(join(root, app, path)),
});
