// The last lines of `npm test`: every check that was left out is named, with its reason.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { EventEmitter } from "node:events";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { noteLeftOut } from "../../scripts/left-out.mjs";
import { root, target } from "../../scripts/lib.mjs";

test("skipped tests are listed once, and others are not", () => {
  const stream = new EventEmitter();
  const lines = new Set();
  noteLeftOut(stream, lines);
  const file = join(root, "tests/pkg/a.test.mjs");
  stream.emit("test:pass", { name: "one", file });
  for (let time = 0; time < 2; time++)
    stream.emit("test:pass", { name: "two", file, skip: "PYTHON" });
  stream.emit("test:pass", { name: "three", file, skip: true });
  assert.deepEqual(
    [...lines],
    ["tests/pkg/a.test.mjs, two: PYTHON", "tests/pkg/a.test.mjs, three: no reason given"],
  );
});

test("Node tells of a skip as these lines read it", () => {
  const program = `import { test } from "node:test";
    test("whole", async (t) => { await t.test("part", (sub) => sub.skip("no Python")); });`;
  const runner = `import { run } from "node:test";
    const [, , part] = process.argv;
    run({ files: [part] }).on("test:pass", ({ name, skip, file }) => {
      if (skip) console.log(JSON.stringify({ name, skip, named: file === part }));
    });`;
  const folder = join(target, "left-out");
  const [part, run] = ["part.mjs", "run.mjs"].map((name) => join(folder, name));
  mkdirSync(folder, { recursive: true });
  writeFileSync(part, program);
  writeFileSync(run, runner);
  const { NODE_TEST_CONTEXT: _, ...env } = process.env; // else the runner takes itself for a test file
  const said = execFileSync(process.execPath, [run, part], { env, encoding: "utf8" });
  assert.deepEqual(JSON.parse(said), { name: "part", skip: "no Python", named: true });
});
