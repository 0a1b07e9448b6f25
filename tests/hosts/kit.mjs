// What the rows of the hosts' table are made with: a folder per host with the packed package installed,
// programs run in it, servers, and a page of headless Chromium.
import { spawn } from "node:child_process";
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { launch } from "../../scripts/browser.mjs";
import { Failure, filesBelow, fingerprint, root } from "../../scripts/lib.mjs";
import { serve } from "../../scripts/server.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const manifest = JSON.parse(readFileSync(join(here, "manifest.json"), "utf8"));
/** Longest that a page, a build or a program may take; software adapters share two cores. */
const PATIENCE = 240_000;

/** Where hosts are installed: outside the project, whose own packages they would find otherwise. */
const home = join(tmpdir(), `tinyloom-hosts-${fingerprint([], root).slice(0, 8)}`);

/** One host's folder and what can be done in it. */
export class Host {
  /**
   * Installs the tarball and the host's packages, at their pinned versions, and copies its app.
   *
   * @param name - the host's name in manifest.json.
   * @param apps - folders of `apps` that are copied, one over the other.
   */
  static async install(tarball, name, apps) {
    const host = new Host(name);
    mkdirSync(host.folder, { recursive: true });
    const dependencies = { ...manifest[name], tinyloom: `file:${tarball}` };
    const text = JSON.stringify({ private: true, type: "module", dependencies }, null, 2);
    const stamp = join(host.folder, "installed");
    const print = fingerprint([tarball], text);
    if (!existsSync(stamp) || readFileSync(stamp, "utf8") !== print) {
      rmSync(join(host.folder, "node_modules", "tinyloom"), { recursive: true, force: true });
      rmSync(join(host.folder, "node_modules", ".package-lock.json"), { force: true });
      writeFileSync(join(host.folder, "package.json"), text);
      // A host that needs a newer Node has it among its packages.
      const quiet = [
        "--engine-strict=false",
        "--no-audit",
        "--no-fund",
        "--no-package-lock",
        "--loglevel=error",
      ];
      await host.command("npm", ["install", ...quiet]);
      writeFileSync(stamp, print);
    }
    host.clear();
    for (const app of apps) cpSync(join(here, "apps", app), host.folder, { recursive: true });
    return host;
  }

  constructor(name) {
    this.name = name;
    this.folder = join(home, name);
  }

  /** Deletes what an earlier row left: everything but the installed packages. */
  clear() {
    const kept = ["node_modules", "package.json", "installed"];
    for (const name of readdirSync(this.folder)) {
      if (!kept.includes(name)) rmSync(join(this.folder, name), { recursive: true, force: true });
    }
  }

  /** The version of one of the host's packages. */
  version(name) {
    const path = join(this.folder, "node_modules", name, "package.json");
    return JSON.parse(readFileSync(path, "utf8")).version;
  }

  /** Starts a program of the host's packages; `node` runs it in another Node than this one. */
  #start(command, args, { env = {}, node } = {}) {
    const bin = join(this.folder, "node_modules", ".bin");
    const path = [node && join(this.folder, "node_modules", node, "bin"), bin, process.env.PATH];
    const quiet = { NEXT_TELEMETRY_DISABLED: "1", ASTRO_TELEMETRY_DISABLED: "1", FORCE_COLOR: "0" };
    const child = spawn(command, args, {
      cwd: this.folder,
      env: { ...process.env, CI: "", ...quiet, ...env, PATH: path.filter(Boolean).join(delimiter) },
      stdio: ["ignore", "pipe", "pipe"],
      detached: true, // a group of its own, so that what it starts ends with it
    });
    endWithThis(child);
    child.output = "";
    for (const stream of [child.stdout, child.stderr])
      stream.on("data", (bytes) => {
        child.output += bytes;
      });
    child.ended = new Promise((done, fail) => {
      child.on("error", fail);
      child.on("close", (code, signal) => done(code ?? signal));
    });
    return child;
  }

  /** Runs a program to its end and gives what it printed. */
  async command(command, args, options) {
    const child = this.#start(command, args, options);
    const timer = setTimeout(() => end(child), PATIENCE);
    const code = await child.ended.finally(() => clearTimeout(timer));
    if (code !== 0) {
      const said = child.output.slice(-1500);
      throw new Failure(`${command} ${args.join(" ")} ended with ${code}: ${said}`);
    }
    return child.output;
  }

  /** Runs a program that prints one line `HOST {…}`, and gives its object. */
  async program(command, args, options) {
    const output = await this.command(command, args, options);
    const line = /^HOST (.*)$/m.exec(output)?.[1];
    if (!line) throw new Failure(`${command} printed no outcome: ${output.slice(-1500)}`);
    return { ...JSON.parse(line), file: true };
  }

  /** Opens the page of a folder of the host's as a plain server gives it. */
  async open(folder = ".", entry = "") {
    const server = await serve({ "/": join(this.folder, folder) });
    try {
      return await visit(`${server.url}/${entry}`);
    } finally {
      await server.close();
    }
  }

  /** Starts a server of the host's, which gets `{port}` as its port, and opens its page. */
  async served(command, args, options) {
    const port = await freePort();
    const words = args.map((word) => word.replace("{port}", port));
    const child = this.#start(command, words, options);
    try {
      await answers(`http://127.0.0.1:${port}/`, child);
      return await visit(`http://localhost:${port}/`);
    } catch (error) {
      throw new Failure(`${error.message}\n${child.output.slice(-1500)}`);
    } finally {
      end(child);
      await child.ended;
    }
  }

  /** Does work while one of the packages is away. */
  async without(name, work) {
    const path = join(this.folder, "node_modules", name);
    renameSync(path, `${path}-away`);
    try {
      await work();
    } finally {
      renameSync(`${path}-away`, path);
    }
  }

  /** Writes a file of the app. */
  write(path, text) {
    mkdirSync(dirname(join(this.folder, path)), { recursive: true });
    writeFileSync(join(this.folder, path), text);
  }

  /** Bytes of JavaScript below a folder, gzipped, file by file. */
  scripts(folder) {
    const files = filesBelow([join(this.folder, folder)], /\/node_modules(\/|$)/);
    return files
      .filter((path) => /\.m?js$/.test(path))
      .reduce((sum, path) => sum + gzipped(path), 0);
  }
}

const gzipped = (path) => gzipSync(readFileSync(path)).length;

function end(child) {
  if (child.pid === undefined || child.exitCode !== null) return; // its number may be another's by now
  try {
    process.kill(-child.pid, "SIGKILL");
  } catch {
    // It has ended by itself.
  }
}

const started = new Set();

/** Ends a child's process group with this process, also when a signal ends this process. */
function endWithThis(child) {
  if (started.size === 0) {
    process.once("exit", () => started.forEach(end));
    for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"])
      process.once(signal, () => process.exit(1));
  }
  started.add(child);
}

function freePort() {
  return new Promise((done) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => done(String(port)));
    });
  });
}

async function answers(url, child) {
  const until = Date.now() + PATIENCE;
  let ended = false;
  child.ended.then(() => {
    ended = true;
  });
  while (!ended && Date.now() < until) {
    const answer = await fetch(url).catch(() => undefined);
    if (answer?.ok) return;
    await new Promise((turn) => setTimeout(turn, 200));
  }
  throw new Failure(`the server ${ended ? "ended" : "did not answer"}`);
}

let browser;
/** The browser that all pages share. */
const shared = () => {
  browser ??= launch("chromium");
  return browser;
};

/** The browser that pages open in, with its version. */
export const browserName = async () =>
  (await (await shared()).version()).replace(/^.*\//, "Chromium ");

/** Closes the shared browser, if one was opened. */
export async function closeBrowser() {
  await (await browser)?.close();
  browser = undefined;
}

/** What the page at an address leaves in `data-host`, and the JavaScript it loaded. */
export async function visit(url, inBrowser) {
  const tab = await (await (inBrowser ?? shared())).newPage();
  const problems = [];
  const loading = [];
  tab.on("console", (message) => {
    if (message.type() === "error") problems.push(message.text());
  });
  tab.on("pageerror", (error) => problems.push(String(error?.stack ?? error)));
  tab.on("response", (response) => {
    if (response.request().resourceType() !== "script") return;
    const bytes = within(10_000, response.buffer()); // none once the page has been loaded again
    loading.push(bytes.then(gzipSync, () => []).then(({ length }) => length));
  });
  try {
    await tab.goto(url, { waitUntil: "load", timeout: PATIENCE });
    const outcome = await left(tab, problems);
    const loaded = (await Promise.all(loading)).reduce((sum, one) => sum + one, 0);
    return { ...outcome, loaded };
  } finally {
    await tab.close();
  }
}

/** The work's outcome, or a failure when it takes longer. */
export function within(milliseconds, work) {
  let timer;
  const late = new Promise((_, fail) => {
    timer = setTimeout(() => fail(new Failure(`it took over ${milliseconds} ms`)), milliseconds);
  });
  return Promise.race([work, late]).finally(() => clearTimeout(timer));
}

/** Waits by asking: a development server may load its page again, and a policy may forbid `eval`. */
async function left(tab, problems) {
  const until = Date.now() + PATIENCE;
  while (Date.now() < until) {
    const asked = tab.evaluate(() => document.documentElement.dataset.host);
    const text = await within(10_000, asked).catch(() => ""); // the page is being loaded again
    if (text) return JSON.parse(text);
    await new Promise((turn) => setTimeout(turn, 200));
  }
  throw new Failure(`the page left no outcome; its console: ${problems.join("\n") || "empty"}`);
}
