import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { defineConfig, type Plugin } from "vite";
import site from "./site.json" with { type: "json" };

const here = import.meta.dirname;
/**
 * What the page itself never asks for: the headless job, the module as text, for hosts without files, the package's own
 * worker, and the picture for social networks.
 */
const ELSEWHERE =
  /^(headless\.html|assets\/(headless|packed|worker-thread)-|service-worker\.js|og\.png)/;

/** Parts of the package that a worker loads for its first run, with all that they need. */
const FIRST =
  /\/pkg\/dist\/(index|worker\/(comlink|host)|storage\/index|deferred|text\/index)\.js$/;

const revision = (content: string | Uint8Array): string =>
  createHash("sha256").update(content).digest("hex").slice(0, 16);

/** Puts the list of all files into the service worker. Files of `assets` have their hash in their name. */
function offline(): Plugin {
  return {
    name: "offline",
    apply: "build",
    enforce: "post",
    generateBundle: {
      order: "post",
      handler(_options, bundle) {
        const built = Object.values(bundle).map((file) => ({
          url: file.fileName,
          content: file.type === "chunk" ? file.code : file.source,
        }));
        const copied = readdirSync(join(here, "public")).map((url) => ({
          url,
          content: readFileSync(join(here, "public", url)),
        }));
        const entries = [...built, ...copied]
          .filter(({ url }) => !ELSEWHERE.test(url))
          .map(({ url, content }) => ({
            url,
            revision: url.startsWith("assets/") ? null : revision(content),
          }));
        const worker = bundle["service-worker.js"];
        if (worker?.type !== "chunk" || worker.imports.length > 0) {
          throw new Error("the service worker is not one file");
        }
        worker.code = worker.code.replace("self.__WB_MANIFEST", JSON.stringify(entries));
      },
    },
  };
}

/** Links to what a site is known by, and the picture that networks show; without an address there is none. */
export function addressed(html: string, { address, links }: typeof site) {
  const meta = (property: string, content: string) => ({
    tag: "meta",
    attrs: { property, content },
    injectTo: "head" as const,
  });
  const known = Object.entries(links).filter(([, to]) => to !== "");
  const shown = known.map(([name, to]) => `<a href="${to}">${name}</a>`).join("\n");
  const tags = address
    ? [
        meta("og:url", address),
        meta("og:image", new URL("og.png", address).href),
        meta("og:image:width", "1200"),
        meta("og:image:height", "630"),
      ]
    : [];
  return { html: html.replace("<!-- links -->", shown), tags };
}

const addresses = (): Plugin => ({
  name: "addresses",
  transformIndexHtml: { order: "pre", handler: (html) => addressed(html, site) },
});

export default defineConfig({
  base: "./",
  plugins: [addresses(), offline()],
  build: {
    target: "es2022",
    modulePreload: { polyfill: false },
    rolldownOptions: {
      input: {
        index: "index.html",
        headless: "headless.html",
        lessons: "lessons.html",
        "service-worker": "src/service-worker.ts",
      },
      output: {
        // Beside the page: its place says which addresses it serves.
        entryFileNames: ({ name }) =>
          name === "service-worker" ? "[name].js" : "assets/[name]-[hash].js",
      },
    },
  },
  // One file, since one import would be found in the file of another, and each takes a request's time.
  worker: {
    format: "es",
    rolldownOptions: { output: { codeSplitting: { groups: [{ name: "first", test: FIRST }] } } },
  },
  // The package finds its wasm module beside itself, which pre-bundling would break.
  optimizeDeps: { exclude: ["tinyloom"] },
});
