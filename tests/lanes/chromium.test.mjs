import { test } from "node:test";
import { runLane } from "./harness.mjs";
import { laneTimeout } from "./level.mjs";

// On one page: what the first device has proved of their adapter, the second need not run again.
test("kernels in Chromium", { timeout: laneTimeout }, (t) =>
  runLane(t, "chromium", [
    {
      name: "at the adapter's limits, with subgroups",
      options: { limits: "adapter", features: { subgroups: true, f16: true, timestamps: true } },
      expect: { subgroups: true },
    },
    {
      name: "at default limits, without features",
      options: {
        limits: "default",
        features: { subgroups: false, f16: false, timestamps: false },
      },
      expect: { subgroups: false, f16: false },
    },
  ]),
);
