// The Python that tests compare with has the versions that its list names, and nothing leaves it out.
// reads: tests scripts .ci
// needs no build
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { filesBelow, root } from "../../scripts/lib.mjs";
import { referencePython } from "../../scripts/reference.mjs";

const text = (path) => readFileSync(join(root, path), "utf8");
const wanted = text("tests/reference/requirements.txt").match(/^[a-z].*$/gm);

const LOCKS = ["tests/reference/requirements.lock", "tests/real/requirements.lock"];

test("every wheel of the locks has an exact version and a hash, and no address", () => {
  for (const path of LOCKS) {
    const lock = text(path);
    const packages = lock.split(/\n(?=[a-z])/);
    for (const one of packages) {
      assert.match(
        one,
        /^[a-z0-9-]+==\S+( ; [^\\]+)? \\\n( {4}--hash=sha256:[0-9a-f]{64}( \\)?\n?)+$/,
      );
    }
    assert.doesNotMatch(lock, /:\/\//, path);
  }
  const lock = text(LOCKS[0]);
  for (const line of wanted)
    assert.ok(`\n${lock}`.includes(`\n${line} \\`), `the lock has ${line}`);
});

test("the environment has what the list names, and torch computes in it", async () => {
  const python = await referencePython();
  const program = `import json, sys, torch
from importlib.metadata import version
product = torch.ones(2, 3) @ torch.ones(3, 2)
names = [line.split("==")[0] for line in sys.argv[1:]]
print(json.dumps([[f"{name}=={version(name)}" for name in names], product.sum().item()]))`;
  const said = execFileSync(python, ["-c", program, ...wanted], { encoding: "utf8" });
  const [versions, sum] = JSON.parse(said);
  const plain = versions.map((one) => one.split("+")[0]);
  assert.deepEqual(plain, wanted);
  assert.equal(sum, 12);
});

test("no test skips for want of a Python", () => {
  const tests = filesBelow(["tests", "scripts", ".ci"]).filter((path) => /\.mjs$|run$/.test(path));
  const asking = tests.filter((path) => /\breferencePython\(/.test(text(path)));
  assert.ok(asking.length >= 6, `${asking.length} files`);
  for (const path of tests) {
    assert.doesNotMatch(text(path), /WITHOUT_[T]RANSFORMERS/, path);
    if (asking.includes(path)) assert.doesNotMatch(text(path), /\.skip\([^)]*[Pp]ython/, path);
  }
});
