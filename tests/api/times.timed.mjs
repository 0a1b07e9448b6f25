// The bodies that hold times to account, in each host.
import { test } from "node:test";
import { bodyNames } from "./bodies.mjs";
import { inBrowser, inNode } from "./harness.mjs";

const limit = { timeout: 1_200_000 };
const bodies = (await bodyNames(true)).map((name) => ({ name, core: false }));

for (const host of ["node", "chromium", "firefox"]) {
  test(`times in ${host}`, limit, (t) =>
    host === "node" ? inNode(t, bodies) : inBrowser(t, host, bodies),
  );
}
