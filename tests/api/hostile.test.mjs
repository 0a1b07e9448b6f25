// A sample of the damaged files and of the calls with nonsense that `npm run reliability -- hostile` takes 20,000 of,
// and of the calls with one piece of nonsense in one place; the core has every 32nd of these.
// reads: tests/reliability
import assert from "node:assert/strict";
import { test } from "node:test";
import { core } from "../gate/core.mjs";
import { seed } from "../lanes/level.mjs";
import { ALL, attack, taken } from "../reliability/hostile.mjs";

const COUNT = 250;
const words = ({ at, kind, name, text, wrong }) => `${at} ${kind} ${name ?? text}: ${wrong}`;

for (const part of ["files", "calls"]) {
  test(`${COUNT} ${part}, drawn by a seed`, { timeout: 300_000 }, async (t) => {
    const { counts, findings } = await attack(part, COUNT, seed);
    t.diagnostic(`TINYLOOM_SEED=${seed}: ${JSON.stringify(counts)}`);
    assert.deepEqual(findings.map(words), [], `with TINYLOOM_SEED=${seed}`);
    assert.ok(taken(counts) >= COUNT, `${taken(counts)} of ${COUNT} were taken`);
  });
}

// A call through a worker takes five times as long: `npm run reliability -- hostile` has all of them.
for (const [part, oneOf] of [
  ["every", core ? 32 : 1],
  ["worker", core ? 128 : 64],
]) {
  const which = oneOf === 1 ? "each call" : `one of ${oneOf} calls`;
  test(`${part}: ${which} with nonsense as an argument or option`, {
    timeout: 600_000,
  }, async (t) => {
    const { counts, findings } = await attack(part, ALL, seed, oneOf);
    t.diagnostic(`TINYLOOM_SEED=${seed}: ${JSON.stringify(counts)}`);
    assert.deepEqual(findings.map(words), [], `with TINYLOOM_SEED=${seed}`);
    const least = 45_000 / oneOf;
    assert.ok(taken(counts) >= least, `${taken(counts)} calls were made, and not ${least}`);
  });
}
