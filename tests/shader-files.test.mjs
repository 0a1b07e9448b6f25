// Which files a change of a shader concerns.
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { filesBelow, root } from "../scripts/lib.mjs";
import { shaderFiles } from "../scripts/shader-files.mjs";

const all = filesBelow(["shaders"]).filter((file) => file.endsWith(".wgsl"));

test("a kernel's files are its entry point's and the modules that these name", () => {
  assert.deepEqual(shaderFiles("checksum_forward"), [
    "shaders/00_checksum.wgsl",
    "shaders/lib/flat.wgsl",
  ]);
  const loss = shaderFiles("cross_entropy_backward");
  assert.ok(loss.includes("shaders/07_cross_entropy.wgsl"));
  assert.ok(loss.includes("shaders/lib/logit/online.wgsl"));
  assert.ok(!loss.includes("shaders/13_sample.wgsl"));
  assert.ok(
    [...loss, ...shaderFiles("sample_several")].every((file) => existsSync(join(root, file))),
  );
});

test("every form of a kernel counts", () => {
  const forms = ["", "_f16", "_int8"].map((form) => `shaders/04_cache_append${form}.wgsl`);
  const found = shaderFiles("cache_append_forward");
  assert.deepEqual(
    found.filter((file) => file.includes("cache_append")),
    forms,
  );
  for (const entry of ["matmul", "matmul_t", "matmul_at"]) {
    const names = ["direct", "matrix", "tiled"].map((form) => `shaders/03_matmul_${form}.wgsl`);
    assert.deepEqual(
      shaderFiles(entry).filter((file) => file.includes("/03_")),
      names,
    );
  }
});

test("a name that no file fits depends on all of them", () => {
  assert.equal(shaderFiles("nothing_of_this_name").length, all.length);
});
