import assert from "node:assert/strict";
import { fork } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { dawnEnv } from "../../scripts/machine.mjs";

test("a panic rejects the call, and the console has its message and stack", async () => {
  const host = fileURLToPath(new URL("panic-host.mjs", import.meta.url));
  const child = fork(host, [], { env: { ...process.env, ...dawnEnv() }, silent: true });
  let printed = "";
  child.stderr.on("data", (text) => {
    printed += text;
  });
  const failures = [];
  child.on("message", (message) => failures.push(message));
  await new Promise((done) => child.on("close", done));
  const [failure] = failures;
  assert.equal(failure?.name, "TinyloomError", printed || "the process said nothing");
  assert.equal(failure.code, "internal");
  assert.match(failure.message, /panicked at/);
  assert.match(printed, /panicked at [^\n]*\.rs:\d+/);
  assert.match(printed, /Stack:[\s\S]*wasm/);
});
