// The rows of the hosts' table. Each installs the packed package in a folder of its own, with no link,
// no alias and no setting for it, and gives what the shared body gave there.
import { copyFileSync, cpSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { launch } from "../../scripts/browser.mjs";
import { Failure } from "../../scripts/lib.mjs";
import { dawnEnv, lavapipe, softwareOnly, vulkanEnv } from "../../scripts/machine.mjs";
import { browserName, Host, visit } from "./kit.mjs";

const NODE = "node26"; // for hosts that need a newer Node than this program does

/** A row: its host's name and way, the version it ran with, and what it does. */
const row = (host, way, pkg, install, apps, work, options = {}) => ({
  host,
  way,
  apps,
  ...options,
  async run(tarball) {
    const at = await Host.install(tarball, install, this.apps);
    const outcome = await work(at);
    // Where no package of the host's runs, the browser does.
    return { version: pkg ? at.version(pkg) : await browserName(), ...outcome };
  },
});

/** A row for an app that has a second form, with everything in `tinyloom/worker`'s worker. */
const app = (...words) => ({ ...row(...words), connectable: true });

const connected = (one) => ({
  ...one,
  way: `${one.way}, tinyloom/worker`,
  apps: [...one.apps, "connect"],
  async run(tarball) {
    // What the worker loads is not seen from the page.
    return { ...(await one.run.call(this, tarball)), file: undefined, spare: undefined };
  },
});

/** What a build left, opened, with the bytes of JavaScript that the page did not load. */
async function built(host, folder) {
  const outcome = await host.open(folder);
  return { ...outcome, spare: host.scripts(folder) - outcome.loaded };
}

const vite = (name, label) => [
  app(label, "dev", "vite", name, ["shared"], (host) =>
    host.served("vite", ["--host", "127.0.0.1", "--port", "{port}"]),
  ),
  app(label, "build", "vite", name, ["shared"], async (host) => {
    await host.command("vite", ["build"]);
    return built(host, "dist");
  }),
];

const HTML =
  '<!doctype html><link rel="icon" href="data:,"><script type="module" src="./main.js"></script>';

const bundlers = [
  ...vite("vite6", "Vite 6"),
  ...vite("vite7", "Vite 7"),
  row("Vite 7", "wasm from ?url, dev", "vite", "vite7", ["shared", "url"], (host) =>
    host.served("vite", ["--host", "127.0.0.1", "--port", "{port}"]),
  ),
  ...vite("vite8", "Vite 8"),
  row("Vite 8", "worker, dev", "vite", "vite8", ["shared", "bundled-worker"], (host) =>
    host.served("vite", ["--host", "127.0.0.1", "--port", "{port}"]),
  ),
  row("Vite 8", "worker, build", "vite", "vite8", ["shared", "bundled-worker"], async (host) => {
    await host.command("vite", ["build"]);
    return host.open("dist");
  }),
  app("webpack 5", "build", "webpack", "webpack5", ["shared"], async (host) => {
    await host.command("webpack", ["--mode", "production", "--entry", "./main.js"]);
    host.write("dist/index.html", HTML);
    return built(host, "dist");
  }),
  app("esbuild", "one file", "esbuild", "esbuild", ["shared"], async (host) => {
    await host.command("esbuild", [
      "main.js",
      "--bundle",
      "--minify",
      "--format=esm",
      "--outdir=dist",
    ]);
    host.write("dist/index.html", HTML);
    return built(host, "dist");
  }),
  app("esbuild", "splitting", "esbuild", "esbuild", ["shared"], async (host) => {
    const flags = ["--bundle", "--minify", "--splitting", "--format=esm", "--outdir=dist"];
    await host.command("esbuild", ["main.js", ...flags]);
    host.write("dist/index.html", HTML);
    return built(host, "dist");
  }),
  app("Rollup", "build", "rollup", "rollup", ["shared"], async (host) => {
    await host.command("rollup", ["main.js", "-d", "dist", "-f", "es", "-p", "node-resolve"]);
    host.write("dist/index.html", HTML);
    return built(host, "dist");
  }),
  app("Parcel 2", "build", "parcel", "parcel", ["shared"], async (host) => {
    await host.command("parcel", ["build", "index.html", "--no-cache"]);
    return built(host, "dist");
  }),
  app("Parcel 2", "dev", "parcel", "parcel", ["shared"], (host) =>
    host.served("parcel", ["serve", "index.html", "--port", "{port}", "--no-cache"]),
  ),
];

const next = (name, label) => [
  app(label, "dev", "next", name, ["shared", "next"], (host) =>
    host.served("next", ["dev", "-H", "127.0.0.1", "-p", "{port}"]),
  ),
  app(label, "build, start", "next", name, ["shared", "next"], async (host) => {
    await host.command("next", ["build"]);
    return host.served("next", ["start", "-H", "127.0.0.1", "-p", "{port}"]);
  }),
];

const frameworks = [
  ...next("next15", "Next 15"),
  ...next("next16", "Next 16"),
  app("SvelteKit", "dev", "@sveltejs/kit", "sveltekit", ["shared", "sveltekit"], (host) =>
    host.served("vite", ["--host", "127.0.0.1", "--port", "{port}"], { node: NODE }),
  ),
  app("SvelteKit", "build", "@sveltejs/kit", "sveltekit", ["shared", "sveltekit"], async (host) => {
    await host.command("vite", ["build"], { node: NODE });
    const flags = ["preview", "--host", "127.0.0.1", "--port", "{port}"];
    return host.served("vite", flags, { node: NODE });
  }),
  app("Astro", "dev", "astro", "astro", ["shared", "astro"], (host) =>
    host.served("astro", ["dev", "--host", "127.0.0.1", "--port", "{port}"], { node: NODE }),
  ),
  app("Astro", "build", "astro", "astro", ["shared", "astro"], async (host) => {
    await host.command("astro", ["build"], { node: NODE });
    return built(host, "dist");
  }),
];

const pages = [
  app(
    "static page",
    "import map",
    undefined,
    "static",
    ["shared", "static"],
    (host) => host.open(),
    {
      quick: true,
    },
  ),
  row("static page", "worker", undefined, "static", ["shared", "worker"], (host) => host.open(), {
    quick: true,
  }),
  row(
    "static page",
    "strict policy",
    undefined,
    "static",
    ["shared", "csp"],
    (host) => host.open(),
    {
      quick: true,
    },
  ),
  row(
    "static page",
    "inline as one file",
    undefined,
    "static",
    ["shared"],
    (host) => {
      const folder = join(host.folder, "alone");
      for (const name of ["index.html", "body.js"])
        cpSync(join(host.folder, name), join(folder, name));
      const file = "tinyloom.inline.min.js";
      copyFileSync(join(host.folder, "node_modules/tinyloom/dist", file), join(folder, file));
      host.write("alone/main.js", ONE_FILE);
      return host.open("alone");
    },
    { quick: true },
  ),
  row("extension", "MV3, its page", undefined, "static", ["shared", "extension"], extension),
];

const ONE_FILE = `import * as tinyloom from "./tinyloom.inline.min.js";
import { show, work } from "./body.js";
show(work(tinyloom));
`;

/** Loads the folder as an unpacked extension, and opens its page. */
async function extension(host) {
  const browser = await launch("chromium", { extensions: true });
  try {
    const id = await browser.installExtension(host.folder);
    const outcome = await visit(`chrome-extension://${id}/index.html`, browser);
    // The browser does not time what an extension reads from itself.
    return { ...outcome, file: outcome.loaded < 100_000 };
  } finally {
    await browser.close();
  }
}

/** Programs, which also keep runs in a folder. */
const programs = [
  row("Node 20", "npm webgpu", "node20", "node", ["shared", "program", "node"], (host) =>
    host.program("node", ["main.mjs"], { env: dawnEnv(), node: "node20" }),
  ),
  row("Node 26", "npm webgpu", "node26", "node", ["shared", "program", "node"], (host) =>
    host.program("node", ["main.mjs"], { env: dawnEnv(), node: "node26" }),
  ),
  row("Bun", "npm webgpu", "bun", "bun", ["shared", "program", "node"], (host) =>
    host.program("bun", ["main.mjs"], { env: dawnEnv() }),
  ),
  row("Deno", "its own WebGPU", "deno", "deno", ["shared", "program", "deno"], (host) => {
    const env = softwareOnly() ? vulkanEnv(lavapipe()) : {};
    return host.program("deno", ["run", "--allow-all", "--no-lock", "main.mjs"], { env });
  }),
];

const VERSIONS = ["57", "58", "59", "60", "70"];

const typescript = VERSIONS.map((version) =>
  row(
    `TypeScript ${version[0]}.${version[1]}`,
    "bundler, node16, nodenext",
    `typescript${version}`,
    "typescript",
    ["types"],
    async (host) => {
      for (const mode of ["bundler", "node16", "nodenext"]) await compiles(host, version, mode);
      return { types: true };
    },
  ),
);

/** A strict program without `skipLibCheck`; before version 6 with WebGPU's types and without. */
async function compiles(host, version, mode) {
  const tsc = join("node_modules", `typescript${version}`, "bin", "tsc");
  const compilerOptions = {
    target: "ES2022",
    lib: ["ES2022", "DOM", "DOM.Iterable"],
    module: mode === "bundler" ? "ESNext" : mode,
    moduleResolution: mode,
    strict: true,
    exactOptionalPropertyTypes: true,
    skipLibCheck: false,
    noEmit: true,
    types: [],
  };
  const trial = async (files) => {
    host.write("tsconfig.json", JSON.stringify({ compilerOptions, files }));
    await host.command("node", [tsc, "-p", "tsconfig.json"]).catch((error) => {
      throw new Failure(`${mode}: ${error.message}`);
    });
  };
  const files = ["main.ts", "worker.ts", "storage.ts", every(host)];
  await trial([...files, "webgpu.ts"]);
  if (Number(version) < 60) await host.without("@webgpu/types", () => trial(files));
}

/** Writes a file that takes in every entry of the package that has types, and gives its name. */
function every(host) {
  const path = join(host.folder, "node_modules/tinyloom/package.json");
  const { exports } = JSON.parse(readFileSync(path, "utf8"));
  const typed = Object.keys(exports).filter((entry) => exports[entry].types);
  const lines = typed.map((entry, at) => {
    const text = JSON.stringify(entry.replace(/^\./, "tinyloom"));
    return `export * as entry${at} from ${text};\n`;
  });
  host.write("every.ts", lines.join(""));
  return "every.ts";
}

export const rows = [...pages, ...bundlers, ...frameworks, ...programs, ...typescript].flatMap(
  (one) => (one.connectable ? [one, connected(one)] : [one]),
);
