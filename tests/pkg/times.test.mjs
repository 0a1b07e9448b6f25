// The bodies that hold times to account, with nothing else on the machine: in the host that the seed draws.
import { test } from "node:test";
import { drawnOf } from "../draws.mjs";
import { TIMED } from "./bodies/run.mjs";
import { inBrowser, inNode } from "./harness.mjs";

const limit = { timeout: 1_200_000 };

for (const host of drawnOf("times", ["Node with Dawn", "chromium", "firefox"], 3)) {
  test(`times in ${host}`, limit, (t) =>
    host.startsWith("Node") ? inNode(t, TIMED) : inBrowser(t, host, TIMED),
  );
}
