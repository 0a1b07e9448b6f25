import { test } from "node:test";
import { runLane } from "./harness.mjs";
import { laneTimeout } from "./level.mjs";

test("kernels in Chromium at the adapter's limits, with subgroups", { timeout: laneTimeout }, (t) =>
  runLane(t, {
    name: "chromium-adapter",
    browser: "chromium",
    options: { limits: "adapter", features: { subgroups: true, f16: true, timestamps: true } },
    expect: { subgroups: true },
  }),
);
