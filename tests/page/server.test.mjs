// The server of the demo page and of the tests: what is asked of it from outside does not end it.
// reads: docs/ops.md scripts
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

test("a part of a file is sent where a Range asks for it", async () => {
  const server = await serve({ "/docs": join(root, "docs") });
  const whole = await (await fetch(`${server.url}/docs/ops.md`)).text();
  const part = async (range) => {
    const response = await fetch(`${server.url}/docs/ops.md`, { headers: { range } });
    const { status, headers } = response;
    return [status, headers.get("content-range"), await response.text()];
  };
  const size = Buffer.byteLength(whole);
  try {
    assert.deepEqual(await part("bytes=0-9"), [206, `bytes 0-9/${size}`, whole.slice(0, 10)]);
    const [status, range, text] = await part(`bytes=${size - 5}-`);
    assert.deepEqual([status, range], [206, `bytes ${size - 5}-${size - 1}/${size}`]);
    assert.equal(text.length, 5);
    assert.equal((await part(`bytes=0-${size * 2}`))[2], whole);
    assert.equal((await part("lines=1-2"))[0], 200);
  } finally {
    await server.close();
  }
});
