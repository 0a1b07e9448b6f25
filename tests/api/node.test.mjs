// reads: tests/reference/check_saved.py
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { root } from "../../scripts/lib.mjs";
import { referencePython } from "../../scripts/reference.mjs";
import { laneTimeout } from "../lanes/level.mjs";
import { placed } from "./bodies/hosts.mjs";
import { pathOf } from "./bodies/run.mjs";
import { openBodies } from "./bodies.mjs";
import { inNode, saved } from "./harness.mjs";

const reference = join(root, "tests", "reference");
const { run, left, notes, passed, ended } = await openBodies("node");
/** The body whose saved models Python reads below: it has passed when that has, too. */
const SAVING = "train/fixtures";
let saving;

test("the public API in Node with Dawn", { timeout: laneTimeout }, (t) => {
  rmSync(saved, { recursive: true, force: true });
  t.diagnostic(
    `${run.length} bodies run; ${left} have not passed whole: npm run test:rest -- api/node`,
  );
  for (const note of notes) t.diagnostic(note);
  return inNode(t, run, (body, kernels) => {
    if (body === SAVING) saving = { kernels };
    else passed(body, kernels);
  });
});

test("transformers reads what was saved", { timeout: 600_000 }, async (t) => {
  const one = run.find(({ name }) => name === SAVING);
  if (!one) return ended();
  assert.ok(saving, "the body has failed");
  const python = await referencePython();
  const { cases, place } = await import(new URL(`../../${pathOf(SAVING)}`, import.meta.url));
  const names = readdirSync(saved);
  const ran = placed(place, Object.keys(cases), "node", one.core);
  const wanted = ran.filter((name) => name.includes(" saved "));
  assert.ok(wanted.length > 0 && names.length === wanted.length, `saved: ${names.join(", ")}`);
  for (const name of names) {
    const folder = join(saved, name);
    const hashes = join(reference, "fixtures", name, "saved.sha256");
    const args = [folder, join(folder, "expected.json"), "--hashes", hashes];
    const script = join(reference, "check_saved.py");
    const { status, stdout, stderr } = spawnSync(python, [script, ...args], { encoding: "utf8" });
    assert.equal(status, 0, `${name}: ${stdout}${stderr}`);
    t.diagnostic(`${name}: ${stdout.split("\n")[0]}`);
  }
  passed(SAVING, saving.kernels);
  ended();
});
