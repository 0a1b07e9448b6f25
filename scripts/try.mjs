// `npm run try`: the README's programs word for word, in an empty folder, with the packed tarball
// installed as `tinyloom`, in headless Chromium.
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { launch, openPage } from "./browser.mjs";
import { codeBlocks } from "./documents.mjs";
import { Failure, isMain, main, run, step } from "./lib.mjs";
import { pack } from "./pack.mjs";
import { serve } from "./server.mjs";

/** How long the page may take on two cores with a software adapter. */
const MOST_SECONDS = 300;

/** A page that runs the README's lines, and shows what they write to the console. */
const pageOf = (lines) => `<!doctype html>
<meta charset="utf-8">
<script type="importmap">{ "imports": { "tinyloom": "./node_modules/tinyloom/dist/index.js" } }</script>
<pre id="output"></pre>
<script>console.log = (line) => document.querySelector("#output").append(line, "\\n");</script>
<script type="module">
${lines}
document.querySelector("#output").append("Done.");
</script>
`;

/** The README's lines and its page. */
function programs() {
  const of = (language) => {
    const found = codeBlocks("README.md").filter((block) => block.language === language);
    if (found.length !== 1) {
      throw new Failure(`README.md has ${found.length} blocks of ${language}, not one program`);
    }
    return found[0].code;
  };
  return { page: of("html"), lines: of("js") };
}

/** An empty folder in which the packed tarball is installed. */
async function installed() {
  const { tarball } = await pack();
  const folder = mkdtempSync(join(tmpdir(), "tinyloom-try-"));
  writeFileSync(join(folder, "package.json"), '{ "type": "module", "private": true }\n');
  const quiet = ["--offline", "--no-audit", "--no-fund", "--loglevel=error", "--legacy-peer-deps"];
  await run("npm", ["install", ...quiet, tarball], { cwd: folder });
  return folder;
}

/** Every loss that a program printed. */
const losses = (text) => [...text.matchAll(/loss ([\d.]+)/g)].map((match) => Number(match[1]));

function expectFallingLoss(what, text, count) {
  const all = losses(text);
  if (all.length !== count) {
    throw new Failure(`${what} printed ${all.length} losses, not ${count}:\n${text}`);
  }
  if (!(all.at(-1) < all[0] / 2)) {
    throw new Failure(`${what}: the loss went from ${all[0]} to ${all.at(-1)}, not below a half`);
  }
  return all;
}

/**
 * Runs a page until its output ends with "Done.", and gives the output and the seconds it took.
 *
 * @param what - the page, for messages.
 */
async function runPage(folder, source, { kind, what }) {
  writeFileSync(join(folder, "index.html"), source);
  const server = await serve({ "/": folder, "/favicon.ico": Buffer.alloc(0) });
  const browser = await launch(kind);
  try {
    const began = Date.now();
    const errors = [];
    const page = await openPage(browser, `${server.url}/`, (type, text) => {
      if (type === "error") errors.push(text);
    });
    const output = () => page.$eval("#output", (element) => element.textContent);
    while (!(await output()).endsWith("Done.")) {
      if (Date.now() - began > MOST_SECONDS * 1000) {
        throw new Failure(`${what} took over ${MOST_SECONDS} s; it shows ${await output()}`);
      }
      if (errors.length > 0) throw new Failure(`${what} failed: ${errors.join("\n")}`);
      await new Promise((done) => setTimeout(done, 250));
    }
    return { text: await output(), seconds: (Date.now() - began) / 1000 };
  } finally {
    await browser.close();
    await server.close();
  }
}

/** Holds what a program wrote behind its last loss to a length, and its losses to their number and their fall. */
function judged(what, { text, seconds }, { count, characters }) {
  const all = expectFallingLoss(what, text, count);
  const sample = text
    .slice(text.indexOf("\n", text.lastIndexOf("loss ")))
    .replace(/Done\.$/, "")
    .trim();
  if (sample.length < characters) throw new Failure(`${what} wrote only "${sample}"`);
  return { seconds, sample, losses: all };
}

/** Gives `work` a folder in which the package is installed, and the programs; the package has to be built. */
async function tried(work) {
  const folder = await installed();
  try {
    return await work(folder, programs());
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/**
 * Runs the README's page.
 *
 * @param kind - of the browser that it runs in.
 */
export const tryPage = (kind) =>
  tried(async (folder, { page }) => {
    const what = "the README's page";
    const ran = await runPage(folder, page, { kind, what });
    return judged(what, ran, { count: 15, characters: 100 });
  });

/** Runs the README's lines, as a module of a page. */
export const tryLines = (kind) =>
  tried(async (folder, { lines }) => {
    const what = "the README's first program";
    const ran = await runPage(folder, pageOf(lines), { kind, what });
    return judged(what, ran, { count: 60, characters: 50 });
  });

const fall = ({ seconds, losses: all }) =>
  `${seconds.toFixed(0)} s, loss ${all[0].toFixed(3)} → ${all.at(-1).toFixed(3)}`;

if (isMain(import.meta.url)) {
  await main(async () => {
    const { setup } = await import("./setup.mjs");
    await setup({ browsers: ["chromium"] });
    const { build } = await import("./build.mjs");
    await build();
    step("running the README's programs with the packed tarball");
    const lines = await tryLines("chromium");
    console.log(`${lines.sample.replaceAll("\n", "")}\n`);
    console.log(`the first program: ${fall(lines)}`);
    const page = await tryPage("chromium");
    console.log(`${page.sample}\n`);
    console.log(`the page: ${fall(page)}`);
  });
}
