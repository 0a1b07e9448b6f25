import { test } from "node:test";
import { runLane } from "./harness.mjs";

test("kernels in Chromium at the adapter's limits, with subgroups", { timeout: 1_500_000 }, (t) =>
  runLane(t, {
    name: "chromium-adapter",
    browser: "chromium",
    options: { limits: "adapter", features: { subgroups: true, f16: true, timestamps: true } },
    expect: { subgroups: true },
  }),
);
