import { test } from "node:test";
import { runLane } from "./harness.mjs";
import { laneTimeout } from "./level.mjs";

test("kernels in Firefox", { timeout: laneTimeout }, (t) =>
  runLane(t, "firefox", [
    {
      name: "at the adapter's limits",
      options: { limits: "adapter", features: { subgroups: true, f16: true, timestamps: true } },
    },
  ]),
);
