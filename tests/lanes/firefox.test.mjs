import { test } from "node:test";
import { runLane } from "./harness.mjs";
import { laneTimeout } from "./level.mjs";

test("kernels in Firefox at the adapter's limits", { timeout: laneTimeout }, (t) =>
  runLane(t, {
    name: "firefox",
    browser: "firefox",
    options: { limits: "adapter", features: { subgroups: true, f16: true, timestamps: true } },
  }),
);
