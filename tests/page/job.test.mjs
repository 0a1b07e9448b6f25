// The headless job in Node with Dawn, where it has to refuse before it begins; and flags that no script has.
// reads: www bench scripts tests/lanes tests/reliability
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import { headless } from "../../scripts/headless.mjs";
import { root } from "../../scripts/lib.mjs";

/** Refused with every word, in seconds. */
async function refused(words, job, text) {
  await assert.rejects(headless({ browser: "node", json: true, text, job }), (error) => {
    for (const word of words) assert.ok(error.message.includes(word), `${error.message}: ${word}`);
    return error.exitCode === 1;
  });
}

test("a model that the machine cannot hold is refused", { timeout: 120_000 }, () => {
  // 4,096 layers of the default width: 13 terabytes.
  return refused(["weights", "GB", "smaller config"], { config: { num_hidden_layers: 4096 } });
});

test("a failure has the command line's names", { timeout: 120_000 }, async () => {
  const text = Buffer.from("too short");
  await refused(["9 bytes", "--sequence-length"], { config: "tiny" }, text);
  await refused(["hidde_size", "hidden_size"], { config: { hidde_size: 64 } });
});

test("a flag that there is not is named, with those that there are", () => {
  for (const [script, known] of [
    ["scripts/start.mjs", "--headless"],
    ["bench/run.mjs", "--profile"],
    ["bench/compare.mjs", "--rounds"],
    ["bench/demo.mjs", "--openings"],
    ["bench/finetune.mjs", "--checkpoints"],
    ["bench/nanogpt.mjs", "--seeds"],
    ["tests/lanes/node.mjs", "--full"],
    ["tests/reliability/run.mjs", "--minutes"],
  ]) {
    const args = [script, "--nonsense"];
    const { status, stderr } = spawnSync(process.execPath, args, { cwd: root, encoding: "utf8" });
    assert.equal(status, 2, `${script}: ${stderr}`);
    const [first] = stderr.trim().split("\n");
    assert.match(first, /^Unknown option '--nonsense'/, script);
    assert.ok(stderr.includes(known), `${script}: ${stderr}`);
    assert.doesNotMatch(stderr, /^ {4}at /m, script);
  }
});
