// examples/pytorch/continue.py goes on with each kind of run: its losses are those that tinyloom has when it goes on
// itself, in one process and in two that share the model with FSDP.
// reads: examples/pytorch tests/train/pytorch-run.mjs
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { root, target } from "../../scripts/lib.mjs";
import { dawnEnv } from "../../scripts/machine.mjs";
import { referencePython } from "../../scripts/reference.mjs";

const run = promisify(execFile);
const TOLERANCE = 1e-4;
/** Processes that share a step, steps. */
const [PROCESSES, STEPS] = [2, 6];
const folder = join(target, "pytorch");
const program = join(root, "examples/pytorch/continue.py");

/** A port that nobody listens on. */
async function freePort() {
  const server = createServer();
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const { port } = server.address();
  await new Promise((done) => server.close(done));
  return port;
}

/** The program on a run; gives what it printed, or as `refused` why it ended. */
async function goOn(kind, how, more = []) {
  const given = [program, join(folder, kind, "run"), join(folder, kind, "dataset"), ...more];
  // Small models: on the CPU also where there is a GPU.
  const env = { ...process.env, CUDA_VISIBLE_DEVICES: "", OMP_NUM_THREADS: "1" };
  const args = [...how, ...given, "--steps", String(STEPS)];
  try {
    return await run(await referencePython(), args, { env });
  } catch ({ stderr }) {
    return { stdout: "", refused: stderr.trim() };
  }
}

/** The largest difference of losses and norms to tinyloom's own. */
function compared({ stdout, refused = "" }, expected) {
  const lines = [...stdout.matchAll(/^step (\d+): loss ([\d.]+), norm ([\d.]+)$/gm)];
  assert.equal(lines.length, STEPS, stdout + refused);
  let most = 0;
  for (const [index, [line, step, loss, norm]] of lines.entries()) {
    assert.equal(Number(step), 11 + index, "the run had made 10 steps");
    const wanted = expected[index];
    for (const [got, is] of [
      [Number(loss), wanted.loss],
      [Number(norm), wanted.gradNorm],
    ]) {
      most = Math.max(most, Math.abs(got / is - 1));
      assert.ok(Math.abs(got / is - 1) <= TOLERANCE, `${line}; tinyloom has ${is}`);
    }
  }
  return most.toExponential(1);
}

test("PyTorch goes on with every kind of run, or says why not", {
  timeout: 1_800_000,
}, async (t) => {
  rmSync(folder, { recursive: true, force: true });
  const made = await run(
    process.execPath,
    [join(import.meta.dirname, "pytorch-run.mjs"), folder, String(STEPS)],
    { env: { ...process.env, ...dawnEnv() }, maxBuffer: 1 << 24 },
  );
  const expected = JSON.parse(made.stdout);
  const torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", String(PROCESSES)];
  const port = async () => ["--master-port", String(await freePort())];
  const base = ["--base", join(folder, "adapter", "base")];
  for (const [kind, how, more = []] of [
    ["text", [...torchrun, ...(await port())]],
    ["text", []],
    ["documents", []],
    ["chats", [...torchrun, ...(await port())]],
    ["gpt2", []],
    ["neox", []],
    ["architecture", []],
    ["adapter", [], base],
    ["layers", []],
  ]) {
    const name = `${kind}${how.length > 0 ? `, ${PROCESSES} processes with FSDP` : ""}`;
    await t.test(name, async (sub) => {
      const out = join(folder, kind, "out");
      rmSync(out, { recursive: true, force: true });
      const most = compared(await goOn(kind, how, [...more, "--save", out]), expected[kind]);
      sub.diagnostic(`losses and norms of ${STEPS} steps differ by at most ${most}`);
      const file = kind === "adapter" ? "adapter_model.safetensors" : "model.safetensors";
      assert.ok(existsSync(join(out, file)), "what it trained is saved");
    });
  }
  for (const [kind, words] of [
    ["lion", /optimizer is lion; this script goes on with adamw alone$/],
    ["ema", /keeps an average of its weights \(ema\), and this script keeps none$/],
    ["adapter", /trained an adapter: name the folder of the model under it with --base$/],
  ]) {
    await t.test(`${kind} is refused in a sentence`, async () => {
      const { refused } = await goOn(kind, []);
      assert.match(refused, words);
      assert.equal(refused.split("\n").length, 1, refused);
    });
  }
});
