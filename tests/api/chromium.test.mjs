import { test } from "node:test";
import { laneTimeout } from "../lanes/level.mjs";
import { openBodies } from "./bodies.mjs";
import { inBrowser } from "./harness.mjs";

test("the public API in Chromium", { timeout: laneTimeout }, async (t) => {
  const { run, left, notes, passed, ended } = await openBodies("chromium");
  t.diagnostic(
    `${run.length} bodies run; ${left} have not passed whole: npm run test:rest -- api/chromium`,
  );
  for (const note of notes) t.diagnostic(note);
  await inBrowser(t, "chromium", run, passed);
  ended();
});
