// A panic is an error of every object of the module: none hangs, and the page can go on in a fresh instance, which
// a new worker has.
import assert from "node:assert/strict";
import { fork } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { dawnEnv } from "../../scripts/machine.mjs";

/** What a host tells, and what it prints. */
async function told(name) {
  const host = fileURLToPath(new URL(name, import.meta.url));
  const child = fork(host, [], { env: { ...process.env, ...dawnEnv() }, silent: true });
  let printed = "";
  child.stderr.on("data", (text) => {
    printed += text;
  });
  let answer;
  child.on("message", (message) => {
    answer = message;
  });
  await new Promise((done) => child.on("close", done));
  assert.ok(answer, printed || "the process said nothing");
  return { answer, printed };
}

const LONG = { timeout: 120_000 };

test("a panic rejects every call, and the console has its message and stack", LONG, async () => {
  const { answer, printed } = await told("panic-host.mjs");
  assert.equal(answer.length, 5);
  for (const failure of answer) {
    assert.equal(failure.name, "TinyloomError");
    assert.equal(failure.code, "internal");
    assert.match(failure.message, /panicked at/);
    assert.match(failure.message, /connect\(\)/, "how to go on");
  }
  assert.match(printed, /panicked at [^\n]*\.rs:\d+/);
  assert.match(printed, /Stack:[\s\S]*wasm/);
});

test(
  "a panic in a worker ends its calls, and a fresh worker resumes to the bit",
  LONG,
  async () => {
    const { answer } = await told("panic-worker-host.mjs");
    const { during, after, loss, expected, step } = answer;
    assert.ok(during.includes("internal"), "no panic");
    const from = during.indexOf("internal");
    assert.deepEqual([...new Set(during.slice(from))], ["internal"], "calls behind the panic");
    assert.deepEqual([...new Set(during.slice(0, from))].join(), from > 0 ? "none" : "");
    assert.deepEqual(after, ["internal", "internal", "internal"]);
    assert.deepEqual([step, loss], [2, expected]);
  },
);
