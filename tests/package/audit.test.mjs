// The audits: a service that does not answer is "not checked", and never passed.
// reads: scripts deny.toml
import assert from "node:assert/strict";
import { test } from "node:test";
import { judgeDeny, judgeNpm, judgePublish } from "../../scripts/audit.mjs";

test("npm audit passes, fails, or was not made", () => {
  const answer = (counts, vulnerabilities = {}) =>
    judgeNpm({
      code: 0,
      out: JSON.stringify({ metadata: { vulnerabilities: counts }, vulnerabilities }),
      err: "",
    });
  assert.equal(answer({ high: 0, critical: 0, low: 2 }).state, "passed");
  const bad = answer({ high: 1, critical: 0 }, { a: { name: "a", severity: "high" } });
  assert.equal(bad.state, "failed");
  assert.match(bad.why, /a \(high\)/);
  for (const out of ["", "<html>", "{}", '{"message":"405","error":{"summary":""}}', "null"]) {
    assert.equal(
      judgeNpm({ code: 1, out, err: "npm error audit endpoint returned an error" }).state,
      "not checked",
      out,
    );
  }
});

test("cargo deny passes, fails, or was not made", () => {
  const judged = (code, err) => judgeDeny({ code, err }).state;
  assert.equal(judged(0, "advisories ok"), "passed");
  assert.equal(judged(1, "error[rejected]: no\nlicenses FAILED"), "failed");
  const away = "failed to fetch advisory database https://…: Could not resolve host";
  assert.equal(judged(1, away), "not checked");
  assert.equal(judged("SIGTERM", ""), "not checked");
  assert.equal(judged(101, "thread 'main' panicked"), "not checked");
});

test("the rehearsal of cargo publish passes, fails, or was not made", () => {
  const judged = (code, err = "") => judgePublish({ code, err }).state;
  assert.equal(judged(0), "passed");
  assert.equal(judged(101, "error: all dependencies must have a version specified"), "failed");
  assert.equal(
    judged(101, "error: attempting to make an HTTP request, but --offline"),
    "not checked",
  );
  assert.equal(judged(101, "error: failed to query replaced source registry"), "not checked");
  assert.equal(judged("SIGTERM"), "not checked");
});
