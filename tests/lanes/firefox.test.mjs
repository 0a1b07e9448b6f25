import { test } from "node:test";
import { runLane } from "./harness.mjs";

test("kernels in Firefox at the adapter's limits", { timeout: 1_500_000 }, (t) =>
  runLane(t, {
    name: "firefox",
    browser: "firefox",
    options: { limits: "adapter", features: { subgroups: true, f16: true, timestamps: true } },
  }),
);
