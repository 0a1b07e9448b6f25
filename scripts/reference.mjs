// The Python that tests compare with: a virtual environment below target/, made once from
// tests/reference/requirements.lock, where each wheel is pinned with its hash.
// reads: tests/reference/requirements.lock tests/reference/cpu_torch.py
import { existsSync, rmSync } from "node:fs";
import { join } from "node:path";
import {
  capture,
  Failure,
  fingerprint,
  root,
  run,
  step,
  target,
  unlessDone,
  which,
} from "./lib.mjs";

const LOCK = "tests/reference/requirements.lock";
const WITHOUT_CUDA = "tests/reference/cpu_torch.py";
const folder = join(target, "reference");
const program = join(
  folder,
  ...(process.platform === "win32" ? ["Scripts", "python.exe"] : ["bin", "python"]),
);

/** The Python of the machine that makes the environment: the lock has wheels for 3.11 and later. */
function systemPython() {
  const found = ["python3", "python"].map((name) => which(name)).filter(Boolean);
  const version = "import sys; print(sys.version_info >= (3, 11))";
  const python = found.find((one) => capture(one, ["-c", version]) === "True");
  if (python) return python;
  throw new Failure(
    `the reference lane needs Python 3.11 or later; found ${found.join(", ") || "none"}`,
  );
}

/**
 * The path of a Python with what the lock names: torch, transformers, PEFT, TRL, tokenizers, jinja2, gguf. `PYTHON` names
 * another one, which is taken as it is.
 *
 * @throws Failure where there is no Python or a wheel cannot be had.
 */
export async function referencePython() {
  if (process.env.PYTHON) return process.env.PYTHON;
  if (!existsSync(join(root, LOCK))) throw new Failure(`${LOCK} is missing`);
  await unlessDone("reference", fingerprint([LOCK, WITHOUT_CUDA]), [program], async () => {
    step("making the Python environment of the reference lane, once (about a minute)");
    rmSync(folder, { recursive: true, force: true });
    await run(systemPython(), ["-m", "venv", folder]);
    const quiet = ["--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:"];
    await run(program, ["-m", "pip", "install", ...quiet, "--require-hashes", "-r", LOCK]);
    if (process.platform === "linux") await run(program, [WITHOUT_CUDA]);
  });
  return program;
}
