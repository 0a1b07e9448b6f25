// A Python with torch and transformers, for the checks that compare with them.
import assert from "node:assert/strict";
import { capture, WITHOUT_TRANSFORMERS, which } from "../../scripts/lib.mjs";

/** Imports what check_saved.py needs; its `dtype` argument came with transformers 4.56. */
const PROBE = `import torch, transformers
print(tuple(int(part) for part in transformers.__version__.split(".")[:2]) >= (4, 56))`;

/** The same for checks of adapters. */
export const PEFT = `import peft\n${PROBE}`;

/**
 * The program's name, or undefined where there is none and the variable allows that.
 *
 * @throws AssertionError where there is none otherwise.
 */
export function findPython(probe = PROBE) {
  const candidates = [process.env.PYTHON, which("python3"), which("python")].filter(Boolean);
  const python = candidates.find((one) => capture(one, ["-c", probe]) === "True");
  if (python) return python;
  assert.equal(
    process.env[WITHOUT_TRANSFORMERS],
    "1",
    "no Python has what this check needs, of torch, transformers and peft: name one in PYTHON (pip install -r " +
      `tests/reference/requirements.txt), or set ${WITHOUT_TRANSFORMERS}=1 to do without this check`,
  );
  return undefined;
}
