// examples/pytorch/continue.py goes on with a run of tinyloom: in two processes that share the model with
// FSDP, its losses are those that tinyloom has on the same batches.
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
/** Positions of a window, windows of a process, processes, steps. */
const [LENGTH, WINDOWS, PROCESSES, STEPS] = [32, 2, 2, 6];

/** A port that nobody listens on. */
async function freePort() {
  const server = createServer();
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const { port } = server.address();
  await new Promise((done) => server.close(done));
  return port;
}

test("PyTorch goes on under torchrun with FSDP", { timeout: 600_000 }, async (t) => {
  const python = await referencePython();
  const folder = join(target, "pytorch");
  rmSync(folder, { recursive: true, force: true });
  const numbers = [LENGTH, WINDOWS * PROCESSES, STEPS].map(String);
  const made = await run(
    process.execPath,
    [join(import.meta.dirname, "pytorch-run.mjs"), folder, ...numbers],
    { env: { ...process.env, ...dawnEnv() } },
  );
  const expected = JSON.parse(made.stdout);
  const { stdout } = await run(
    python,
    [
      ...["-m", "torch.distributed.run", "--nproc-per-node", String(PROCESSES)],
      ...["--master-port", String(await freePort())],
      join(root, "examples/pytorch/continue.py"),
      ...[join(folder, "run"), join(folder, "dataset"), "--save", join(folder, "out")],
      ...[
        "--steps",
        String(STEPS),
        "--sequence-length",
        String(LENGTH),
        "--batch",
        String(WINDOWS),
      ],
    ],
    // Two processes of a small model: on the CPU also where there is a GPU.
    { env: { ...process.env, CUDA_VISIBLE_DEVICES: "", OMP_NUM_THREADS: "1" } },
  );
  const lines = [...stdout.matchAll(/^step (\d+): loss ([\d.]+), norm ([\d.]+)$/gm)];
  assert.equal(lines.length, STEPS, stdout);
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
  assert.ok(existsSync(join(folder, "out", "model.safetensors")), "the model is saved");
  t.diagnostic(`losses and norms of ${STEPS} steps differ by at most ${most.toExponential(1)}`);
});
