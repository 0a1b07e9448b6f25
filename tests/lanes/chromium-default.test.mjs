import { test } from "node:test";
import { runLane } from "./harness.mjs";
import { laneTimeout } from "./level.mjs";

test("kernels in Chromium at default limits, without features", { timeout: laneTimeout }, (t) =>
  runLane(t, {
    name: "chromium-default",
    browser: "chromium",
    options: { limits: "default", features: { subgroups: false, f16: false, timestamps: false } },
    expect: { subgroups: false, f16: false },
  }),
);
