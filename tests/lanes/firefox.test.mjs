import { test } from "node:test";
import { softwareOnly } from "../../scripts/machine.mjs";
import { runLane } from "./harness.mjs";
import { laneTimeout } from "./level.mjs";

// The native lane runs more kernels on the same adapter, where CI has lavapipe: see CONTRIBUTING.
const others = softwareOnly() ? "compile" : "run";

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
