// Zip archives: Python's zipfile reads their names and bytes, NumPy and safetensors what is in them, and tinyloom itself.
// reads: tests/storage/read_zip.py
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { zip } from "tinyloom/storage";
import { referencePython } from "../../scripts/reference.mjs";
import { makeFile } from "../api/bodies/kit.mjs";

const { readZip } = await import("../../pkg/dist/storage/zip.js");

const NUMBERS = Float32Array.of(1, -2.5, 3.25, 0);
const numbers = new Uint8Array(NUMBERS.buffer);

/** An array as NumPy saves it: version 1.0 of its format. */
function npy() {
  const text = "{'descr': '<f4', 'fortran_order': False, 'shape': (4,), }".padEnd(117);
  const head = new TextEncoder().encode(`?NUMPY??__${text}\n`);
  head.set([0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, 1, 0, 118, 0]);
  return new Blob([head, numbers]);
}

/** More than the writer reads at a time, twice. */
const large = new Uint8Array((17 << 20) + 3).map((_, at) => (at * 2_654_435_761) >>> 13);

const files = {
  "array.npy": npy(),
  "adapter_model.safetensors": makeFile(
    { weights: { dtype: "F32", shape: [2, 2], data_offsets: [0, 16] } },
    numbers,
  ),
  "empty.txt": new Blob([]),
  "folder/ein Größe-数.txt": new Blob(["a text"]),
  "large.bin": new Blob([large]),
};
const bytesOf = async (content) => new Uint8Array(await new Blob([content]).arrayBuffer());
const hashOf = (bytes) => createHash("sha256").update(bytes).digest("hex");

test("Python reads a zip, and what is in it", { timeout: 300_000 }, async () => {
  const folder = mkdtempSync(join(tmpdir(), "tinyloom-zip-"));
  try {
    const archive = join(folder, "files.zip");
    writeFileSync(archive, await bytesOf(await zip(files)));
    const script = join(import.meta.dirname, "read_zip.py");
    const { status, stdout, stderr } = spawnSync(await referencePython(), [script, archive], {
      encoding: "utf8",
    });
    assert.equal(status, 0, stderr);
    const read = JSON.parse(stdout);
    const wanted = [];
    for (const [name, content] of Object.entries(files)) {
      wanted.push([name, hashOf(await bytesOf(content)), [1980, 1, 1, 0, 0, 0]]);
    }
    assert.deepEqual(read.entries, wanted);
    assert.deepEqual(read.numpy, [...NUMBERS]);
    assert.deepEqual(read.safetensors, [
      [1, -2.5],
      [3.25, 0],
    ]);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test("the same files give the same zip, which tinyloom reads", async () => {
  const [one, two] = [await zip(files), await zip(files)];
  assert.equal(hashOf(await bytesOf(one)), hashOf(await bytesOf(two)));
  const back = await readZip(one);
  assert.deepEqual(
    Object.keys(back),
    Object.keys(files).map((name) => name.split("/").at(-1)),
  );
  for (const [name, content] of Object.entries(files)) {
    const own = back[name.split("/").at(-1)];
    assert.equal(hashOf(await bytesOf(own)), hashOf(await bytesOf(content)), name);
  }
});
