// The chats of `npm run test:real` with a small model: a page of Chromium, llama.cpp and PEFT answer alike.
// reads: tests/real tests/files/gguf/page.mjs
import assert from "node:assert/strict";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { root, target } from "../../scripts/lib.mjs";
import { told } from "../child.mjs";
import { chatRows, peftRows, tunedRows } from "./chats.mjs";
import { askPeft } from "./prepare.mjs";

test("a small model is asked, trained, saved and asked again", { timeout: 300_000 }, async (t) => {
  const folder = join(target, "real-small");
  rmSync(folder, { recursive: true, force: true });
  const script = join(import.meta.dirname, "small.mjs");
  const { printed, code } = await told(script, { args: [folder], seconds: 120, signal: t.signal });
  assert.equal(code, 0, printed);
  const where = { folder, packages: join(root, "node_modules") };
  const rows = [];
  rows.push(...(await chatRows(where, false)).rows);
  rows.push(...(await tunedRows(where)).rows);
  await askPeft("smollm2", folder);
  rows.push(...peftRows(where).rows);
  for (const { check, compared, worst, note } of rows)
    t.diagnostic(`${check}: ${compared}, ${worst} apart ${note}`);
  const [learned, ...others] = rows.toSorted(
    (a, b) => Number(b.check.startsWith("LoRA")) - Number(a.check.startsWith("LoRA")),
  );
  assert.equal(others.length, 4);
  for (const { ok, check, note } of others) assert.ok(ok, `${check}: ${note}`);
  assert.match(learned.compared, /10 texts/);
});
