import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { root } from "../../scripts/lib.mjs";
import { referencePython } from "../../scripts/reference.mjs";
import { placed } from "./bodies/places.mjs";
import { BODIES, TIMED } from "./bodies/run.mjs";
import { inNode, placeOf, saved } from "./harness.mjs";

const reference = join(root, "tests", "reference");

test("every body has its place", () => {
  const folder = join(import.meta.dirname, "bodies");
  const bodies = readdirSync(folder).filter((file) =>
    readFileSync(join(folder, file), "utf8").includes("\nexport const cases = "),
  );
  const others = ["storage.mjs", "worker.mjs"]; // tests of the same names run these
  const placed = [...[...BODIES, ...TIMED].map((body) => `${body}.mjs`), ...others];
  assert.deepEqual(bodies.toSorted(), placed.toSorted());
});

/** What each host has to hold, however little else of the body it runs. */
const EVERYWHERE = {
  calls: ["unawaited calls that share an array read it as it was"],
  cut: [
    "matrices cut into several bindings and shards train as whole ones do",
    "a cut model trains, is saved, resumed and generated from",
  ],
  faults: [
    "a model or trainer whose upload is refused is not made",
    "a creation after one whose pipelines were refused makes its own",
  ],
};

test("shared arrays, cut matrices and second creations are tested in every host", async () => {
  for (const [body, names] of Object.entries(EVERYWHERE)) {
    const { cases } = await import(`./bodies/${body}.mjs`);
    for (const host of ["node", "chromium", "firefox"]) {
      for (let turn = 0; turn < 12; turn++) {
        const run = placed(body, Object.keys(cases), host, turn);
        for (const name of names) assert.ok(run.includes(name), `${host} does not run ${name}`);
      }
    }
  }
});

test("the public API in Node with Dawn", { timeout: 1_200_000 }, (t) => {
  rmSync(saved, { recursive: true, force: true });
  return inNode(t);
});

test("transformers reads what was saved", { timeout: 300_000 }, async (t) => {
  const python = await referencePython();
  const names = readdirSync(saved);
  const { cases } = await import("./bodies/fixtures.mjs");
  const { host, turn } = placeOf("node");
  const drawn = placed("fixtures", Object.keys(cases), host, turn);
  const saving = drawn.filter((name) => name.includes(" saved "));
  assert.ok(saving.length > 0 && names.length === saving.length, `saved: ${names.join(", ")}`);
  for (const name of names) {
    const folder = join(saved, name);
    const hashes = join(reference, "fixtures", name, "saved.sha256");
    const args = [folder, join(folder, "expected.json"), "--hashes", hashes];
    const script = join(reference, "check_saved.py");
    const { status, stdout, stderr } = spawnSync(python, [script, ...args], { encoding: "utf8" });
    assert.equal(status, 0, `${name}: ${stdout}${stderr}`);
    t.diagnostic(`${name}: ${stdout.split("\n")[0]}`);
  }
});
