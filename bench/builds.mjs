// Two builds in headless Chromium, for what compares them.
import { join, resolve } from "node:path";
import { serve } from "../scripts/server.mjs";
import { launch } from "./browser.mjs";

/** Names of the builds, in the order in which their folders are given. */
export const BUILDS = ["old", "new"];

/**
 * Serves two builds to pages that are cross-origin isolated: otherwise their clock counts by 0.1 ms, which is 5 % of a
 * small step. A page imports a build from `/old/pkg/index.js` or `/new/pkg/index.js`, and what lies beside this file
 * from `/bench`. Ends the process where there are not two folders.
 *
 * @param folders - with `pkg/dist` of each build.
 * @returns `inPage(work, ...args)`, what a function gives in a fresh page, and `close`.
 */
export async function openBuilds(folders) {
  if (folders.length !== BUILDS.length) {
    console.error("give two folders: of the old build and of the new one");
    process.exit(2);
  }
  const blank = Buffer.from('<!doctype html><link rel="icon" href="data:,"><title>bench</title>');
  const routes = { "/blank.html": blank, "/bench": import.meta.dirname };
  for (const [index, name] of BUILDS.entries())
    routes[`/${name}/pkg`] = join(resolve(folders[index]), "pkg", "dist");
  const server = await serve(routes, { isolated: true });
  const browser = await launch("chromium");

  async function inPage(work, ...args) {
    const page = await browser.newPage();
    page.on("console", (message) => console.error(`page: ${message.text()}`));
    await page.goto(`${server.url}/blank.html`);
    const result = await page.evaluate(work, ...args);
    await page.close();
    return result;
  }

  async function close() {
    await browser.close();
    await server.close();
  }
  return { inPage, close };
}
