// A sample of the damaged files and of the calls with nonsense that `npm run reliability -- hostile` takes 20,000 of.
import assert from "node:assert/strict";
import { test } from "node:test";
import { freshSeed } from "../random.mjs";
import { attack } from "../reliability/hostile.mjs";

const COUNT = 250;

for (const part of ["files", "calls"]) {
  test(`${COUNT} ${part}, drawn by a seed`, { timeout: 300_000 }, async (t) => {
    const seed = Number(process.env.TINYLOOM_SEED ?? freshSeed());
    const { counts, findings } = await attack(part, COUNT, seed);
    t.diagnostic(`TINYLOOM_SEED=${seed}: ${JSON.stringify(counts)}`);
    const words = findings.map(
      ({ at, kind, name = "", wrong }) => `${at} ${kind} ${name}: ${wrong}`,
    );
    assert.deepEqual(words, [], `with TINYLOOM_SEED=${seed}`);
    const made = JSON.stringify(counts)
      .match(/\d+/g)
      .reduce((sum, count) => sum + Number(count), 0);
    assert.ok(made >= COUNT, `${made} of ${COUNT} were taken`);
  });
}
