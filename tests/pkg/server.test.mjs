// The server of the demo page and of the tests: what is asked of it from outside does not end it.
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { root } from "../../scripts/lib.mjs";
import { serve } from "../../scripts/server.mjs";

test("paths that name no file are refused, and the server stays", async () => {
  const server = await serve({ "/docs": join(root, "docs"), "/text": Buffer.from("text") });
  const status = async (path) => (await fetch(`${server.url}${path}`)).status;
  try {
    for (const path of ["/", "/docs/%00", "/docs/%", "/docs/none.md", "/elsewhere", "/%00"])
      assert.equal(await status(path), 404, path);
    assert.equal(await status("/docs/..%2fCargo.toml"), 403, "outside the folder");
    assert.equal(await status("/docs/ops.md"), 200);
    assert.equal(await status("/text"), 200);
  } finally {
    await server.close();
  }
});
