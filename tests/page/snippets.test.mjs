// "This panel in code": every program beside a panel runs as it is shown, to its end.
// reads: www/snippets www/index.html tests/page/snippet-node.mjs
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { root } from "../../scripts/lib.mjs";

const folder = join(root, "www/snippets");
/** What each has to print. */
const PRINTS = {
  benchmark: /^[\d.]+ ms a step on /m,
  inside: /^\[ 676, 676 \]$/m,
  kernels: /embedding_forward[\s\S]*fn embedding_forward/,
  plug: /^6 [\d.]+\n(?:.*\n)*lost\n(?:.*\n)*recovered\n(?:.*\n)*12 [\d.]+$/m,
  proof: /^([0-9a-f]{64})$[\s\S]*^\1$/m,
  runs: /^4 [\d.]+\n5 [\d.]+\n(?:.*\n)*8 [\d.]+$/m,
  teach: /^10 [\d.-]+$/m,
  tune: /^10 [\d.]+\n\[ 'adapter_config\.json', 'adapter_model\.safetensors' \]$/m,
};
const LINES = 24;

test("each panel that has a program has one of about ten statements, and no program is left over", () => {
  const shown = readFileSync(join(root, "www/index.html"), "utf8").matchAll(/data-code="(\w+)"/g);
  const files = readdirSync(folder).map((file) => file.replace(".js", ""));
  assert.deepEqual([...shown].map(([, name]) => name).sort(), files);
  assert.deepEqual(Object.keys(PRINTS), files);
  for (const name of files) {
    const lines = readFileSync(join(folder, `${name}.js`), "utf8")
      .trimEnd()
      .split("\n");
    assert.ok(lines.length <= LINES, `${name}: ${lines.length} lines`);
  }
});

for (const [name, prints] of Object.entries(PRINTS)) {
  test(`the program “${name}” runs as it is shown`, { timeout: 240_000 }, (t) => {
    const data = mkdtempSync(join(tmpdir(), "tinyloom-snippet-"));
    t.after(() => rmSync(data, { recursive: true, force: true }));
    const { status, stdout, stderr } = spawnSync(
      process.execPath,
      [join(root, "tests/page/snippet-node.mjs"), join(folder, `${name}.js`)],
      { encoding: "utf8", env: { ...process.env, XDG_DATA_HOME: data } },
    );
    assert.equal(status, 0, stderr);
    assert.match(stdout, prints);
  });
}
