// The packed package in the hosts that need seconds and nothing from a registry; `npm run hosts` has all.
// reads: tests/hosts
import assert from "node:assert/strict";
import { test } from "node:test";
import { rows } from "./rows.mjs";
import { runHosts } from "./run.mjs";

test("the packed package works in hosts, with one loss", { timeout: 600_000 }, async (t) => {
  const quick = rows.filter((row) => row.quick);
  assert.ok(quick.length >= 4);
  for (const { host, way, ok, wrong, loss, seconds } of await runHosts(quick)) {
    await t.test(`${host}, ${way}`, (sub) => {
      sub.diagnostic(`loss ${loss}, ${seconds} s`);
      assert.ok(ok, wrong);
    });
  }
});
