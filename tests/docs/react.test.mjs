// examples/react runs, bundled as an app's development server would: it learns, pauses, survives a reload and goes on.
// React's StrictMode mounts each component twice there.
// reads: examples/react
import assert from "node:assert/strict";
import { copyFileSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { build } from "esbuild";
import { launch, openPage } from "../../scripts/browser.mjs";
import { root, target } from "../../scripts/lib.mjs";
import { serve } from "../../scripts/server.mjs";

const NOTES = "The cat sees the fox. The dog hears the hen. The owl follows the bee.\n".repeat(40);
const WAIT = 180_000;

/** The folder of the bundled app. */
async function app() {
  const out = join(target, "examples-react");
  rmSync(out, { recursive: true, force: true });
  mkdirSync(out, { recursive: true });
  await build({
    entryPoints: [join(root, "examples/react/app.jsx")],
    bundle: true,
    format: "esm",
    splitting: true,
    outdir: out,
    jsx: "automatic",
    jsxDev: true,
    define: { "process.env.NODE_ENV": '"development"' },
    logLevel: "error",
  });
  // esbuild leaves these where they are; Vite and its like copy them.
  for (const file of ["worker-thread.js", "tinyloom_bg.wasm"]) {
    copyFileSync(join(root, "pkg/dist", file), join(out, file));
  }
  const page = readFileSync(join(root, "examples/react/index.html"), "utf8");
  writeFileSync(join(out, "index.html"), page.replace("/app.jsx", "/app.js"));
  return out;
}

test("react learns, survives a reload and writes", { timeout: 600_000 }, async (t) => {
  const server = await serve({ "/": await app(), "/favicon.ico": Buffer.alloc(0) });
  t.after(() => server.close());
  const browser = await launch("firefox", { seconds: WAIT / 1000 }); // compiles in a third of the time on a CPU
  t.after(() => browser.close());
  const errors = [];
  const page = await openPage(browser, `${server.url}/`, (type, text) => {
    if (type === "error") errors.push(text);
  });
  const status = () => page.$eval("#status", ({ textContent }) => textContent);
  const shows = async (pattern) => {
    const end = Date.now() + WAIT;
    while (!pattern.test(await status())) {
      assert.deepEqual(errors, [], `while waiting for ${pattern}`);
      assert.ok(Date.now() < end, `it does not show ${pattern} but: ${await status()}`);
      await new Promise((done) => setTimeout(done, 100));
    }
    return status();
  };
  const step = (text) => Number(/step (\d+)/i.exec(text)[1]);
  const ready = () => document.getElementById("status") !== null;
  await page.waitForFunction(ready);
  await shows(/^Write some notes/);
  await page.focus("textarea");
  await page.evaluate((notes) => document.execCommand("insertText", false, notes), NOTES);
  await page.click("#learn");
  await shows(/^Step [1-9]/);
  await page.click("#pause");
  const paused = step(await shows(/^Paused after step \d+, and saved/));
  await page.reload();
  await page.waitForFunction(ready);
  assert.equal(step(await shows(/^Back at step/)), paused);
  await page.click("#learn");
  assert.ok(step(await shows(/^Step \d/)) > paused);
  await page.click("#pause");
  await shows(/^Paused after/);
  await page.click("#write");
  await page.waitForFunction(() => document.querySelector("output").textContent.length > 60);
  assert.deepEqual(errors, []);
});
