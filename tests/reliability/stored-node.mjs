// A Node process with Dawn that damages runs in a folder: `{ seed, times }` in, the rows out.
import { mkdtempSync, rmSync } from "node:fs";
import fs from "node:fs/promises";
import { syncBuiltinESMExports } from "node:module";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { create } from "webgpu";
import * as tinyloom from "../../pkg/dist/index.js";
import * as storage from "../../pkg/dist/storage/index.js";
import { folderDisk } from "../storage/folder-disk.mjs";
import { Stored } from "./stored-stage.mjs";

/** What Node calls the errors. */
const CODES = { QuotaExceededError: "ENOSPC", NotAllowedError: "EACCES" };

/** Makes writes of a file fail, each with an error of that name. */
function failingFiles() {
  const { open } = fs;
  let [file, name] = [];
  const failed = () => Object.assign(new Error("on purpose"), { code: CODES[name] });
  fs.open = async (path, flags, ...more) => {
    const fails = basename(`${path}`) === file && flags !== undefined && flags !== "r";
    if (fails && name === "NotAllowedError") throw failed();
    const opened = await open(path, flags, ...more);
    if (fails) {
      opened.write = async () => {
        throw failed();
      };
    }
    return opened;
  };
  syncBuiltinESMExports();
  return (...next) => {
    [file, name] = next;
  };
}

process.once("message", async ({ seed, times }) => {
  const root = mkdtempSync(join(tmpdir(), "tinyloom-stored-"));
  const stage = new Stored({
    tinyloom: { ...tinyloom, ...storage },
    gpu: create([]),
    open: (name) => storage.Runs.open(name, { folder: join(root, name) }),
    disk: folderDisk(root),
    failing: failingFiles(),
    seed,
  });
  const opened = await stage.begin();
  const rows = [...(await stage.damages(times)), ...(await stage.failures())];
  rmSync(root, { recursive: true, force: true });
  await new Promise((sent) => process.send({ ...opened, rows }, sent));
  process.exit(0); // Dawn's threads would keep the process alive
});
