import { test } from "node:test";
import { softwareOnly } from "../../scripts/machine.mjs";
import { runLane } from "./harness.mjs";
import { laneTimeout } from "./level.mjs";

// The native lane runs as many other cases, and kernels for other adapters, on the same driver, where CI has lavapipe: see
// CONTRIBUTING.
const others = softwareOnly() ? "own" : "run";
// As there: lavapipe without LLVM's passes.
if (softwareOnly()) process.env.GALLIVM_PERF ??= "nopt";

test("kernels in Firefox", { timeout: laneTimeout }, (t) =>
  runLane(
    t,
    "firefox",
    [
      {
        name: "at the adapter's limits",
        options: { limits: "adapter", features: { subgroups: true, f16: true, timestamps: true } },
      },
    ],
    others,
  ),
);
