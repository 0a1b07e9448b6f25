// The bodies that hold times to account, in each host: with nothing else on the machine.
import { test } from "node:test";
import { TIMED } from "./bodies/run.mjs";
import { inBrowser, inNode } from "./harness.mjs";

const limit = { timeout: 1_200_000 };

test("times in Node with Dawn", limit, (t) => inNode(t, TIMED));
for (const kind of ["chromium", "firefox"]) {
  test(`times in ${kind}`, limit, (t) => inBrowser(t, kind, TIMED));
}
