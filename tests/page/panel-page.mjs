// Panels of the demo page in its own markup and styles, without its script: a test says what they are given.
// reads: www
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { build } from "esbuild";
import { launch, openPage } from "../../scripts/browser.mjs";
import { root } from "../../scripts/lib.mjs";
import { serve } from "../../scripts/server.mjs";

const www = join(root, "www");

/** Files that the page loads by their address are none that a panel needs. */
const addresses = {
  name: "addresses",
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /\?url$/ }, ({ path }) => ({ path, namespace: "address" }));
    onLoad({ filter: /./, namespace: "address" }, () => ({ contents: 'export default "";' }));
  },
};

/** Modules of the page as one, with all that they need. */
async function bundled(modules) {
  const contents = modules.map((path) => `export * from "./src/${path}.ts";`).join("\n");
  const { outputFiles } = await build({
    stdin: { contents, resolveDir: www },
    bundle: true,
    // The page's own styles are in its markup; those of a library are not looked at.
    loader: { ".css": "empty" },
    format: "esm",
    target: "es2022",
    plugins: [addresses],
    write: false,
  });
  return Buffer.from(outputFiles[0].contents);
}

/**
 * Opens the page's markup in a browser.
 *
 * @param modules - below `www/src`, without their ending: what `import("/panels.js")` gives there.
 * @param worker - the module of a worker, which is `/worker.js` there.
 */
export async function openPanels(t, modules, viewport, worker) {
  const html = readFileSync(join(www, "index.html"), "utf8").replace(/<script .*<\/script>/, "");
  const files = { "/page.html": Buffer.from(html), "/panels.js": await bundled(modules) };
  if (worker) files["/worker.js"] = await bundled([worker]);
  const server = await serve({ "/": www, ...files });
  t.after(() => server.close());
  const browser = await launch("chromium", { seconds: 60 });
  t.after(() => browser.close());
  const page = await openPage(browser, `${server.url}/page.html`);
  await page.setViewport(viewport);
  return page;
}
