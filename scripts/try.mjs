// `npm run try`: the README's programs word for word, in an empty folder, with the packed tarball
// installed as `tinyloom`. The page runs in headless Chromium, the script in Node.
import { spawn } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { launch, openPage } from "./browser.mjs";
import { codeBlocks } from "./documents.mjs";
import { Failure, isMain, main, root, run, step } from "./lib.mjs";
import { dawnEnv } from "./machine.mjs";
import { pack } from "./pack.mjs";
import { serve } from "./server.mjs";

/** How long the page may take on two cores with a software adapter. */
const MOST_SECONDS = 300;

/** The README's page and its program for Node. */
function programs() {
  const of = (language) => {
    const found = codeBlocks("README.md").filter((block) => block.language === language);
    if (found.length !== 1) {
      throw new Failure(`README.md has ${found.length} blocks of ${language}, not one program`);
    }
    return found[0].code;
  };
  return { page: of("html"), node: of("js") };
}

/** An empty folder in which the packed tarball is installed, and `webgpu` as this project has it. */
async function installed() {
  const { tarball } = await pack();
  const folder = mkdtempSync(join(tmpdir(), "tinyloom-try-"));
  writeFileSync(join(folder, "package.json"), '{ "type": "module", "private": true }\n');
  const quiet = ["--offline", "--no-audit", "--no-fund", "--loglevel=error", "--legacy-peer-deps"];
  await run("npm", ["install", ...quiet, tarball], { cwd: folder });
  // The tarball of webgpu has 100 MB: a link to the installed package serves as well.
  const webgpu = join(root, "node_modules", "webgpu");
  symlinkSync(webgpu, join(folder, "node_modules", "webgpu"), "junction");
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

/** Runs the page and gives what it printed, `seconds` and `losses`. */
async function runPage(folder, source, kind) {
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
        throw new Failure(
          `the README's page took over ${MOST_SECONDS} s; it shows ${await output()}`,
        );
      }
      if (errors.length > 0) throw new Failure(`the README's page failed: ${errors.join("\n")}`);
      await new Promise((done) => setTimeout(done, 250));
    }
    const text = await output();
    const seconds = (Date.now() - began) / 1000;
    const sample = text.slice(text.indexOf("\n\n")).replace("Done.", "").trim();
    if (sample.length < 100) throw new Failure(`the README's page wrote only "${sample}"`);
    return { seconds, sample, losses: expectFallingLoss("the README's page", text, 15) };
  } finally {
    await browser.close();
    await server.close();
  }
}

/** Runs the program for Node and gives `seconds` and `losses`. */
async function runNode(folder, source) {
  writeFileSync(join(folder, "train.mjs"), source);
  const began = Date.now();
  const { code, text } = await output(process.execPath, ["train.mjs"], folder);
  if (code !== 0) throw new Failure(`the README's program for Node ended with ${code}:\n${text}`);
  const saved = readdirSync(join(folder, "run")).sort().join();
  const wanted = "config.json,model.safetensors,optimizer.safetensors,trainer_state.json";
  if (saved !== wanted) throw new Failure(`the README's program for Node saved ${saved}`);
  const seconds = (Date.now() - began) / 1000;
  return { seconds, losses: expectFallingLoss("the README's program for Node", text, 5) };
}

/** A program's exit code and all that it printed. */
function output(command, args, cwd) {
  return new Promise((done, fail) => {
    const child = spawn(command, args, { cwd, env: { ...process.env, ...dawnEnv() } });
    let text = "";
    for (const stream of [child.stdout, child.stderr]) {
      stream.on("data", (chunk) => {
        text += chunk;
      });
    }
    child.on("error", fail);
    child.on("exit", (code, signal) => done({ code: signal ?? code, text }));
  });
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
export const tryPage = (kind) => tried((folder, { page }) => runPage(folder, page, kind));

/** Runs the README's program for Node. */
export const tryNode = () => tried((folder, { node }) => runNode(folder, node));

const fall = ({ seconds, losses: all }) =>
  `${seconds.toFixed(0)} s, loss ${all[0].toFixed(3)} → ${all.at(-1).toFixed(3)}`;

if (isMain(import.meta.url)) {
  await main(async () => {
    const { setup } = await import("./setup.mjs");
    await setup({ browsers: ["chromium", "node"] });
    const { build } = await import("./build.mjs");
    await build();
    step("running the README's programs with the packed tarball");
    const { page, node } = await tried(async (folder, { page, node }) => ({
      page: await runPage(folder, page, "chromium"),
      node: await runNode(folder, node),
    }));
    console.log(`${page.sample}\n`);
    console.log(`the page in Chromium: ${fall(page)}`);
    console.log(`the program in Node: ${fall(node)}`);
  });
}
