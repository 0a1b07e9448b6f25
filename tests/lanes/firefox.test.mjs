import { test } from "node:test";
import { softwareOnly } from "../../scripts/machine.mjs";
import { runLane } from "./harness.mjs";
import { laneTimeout } from "./level.mjs";

// lavapipe without LLVM's passes, as in the native lane.
if (softwareOnly()) process.env.GALLIVM_PERF ??= "nopt";

test("kernels in Firefox", { timeout: laneTimeout }, (t) =>
  runLane(t, "firefox", [
    {
      name: "at the adapter's limits",
      options: { limits: "adapter", features: { subgroups: true, f16: true, timestamps: true } },
    },
  ]),
);
