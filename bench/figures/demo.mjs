// node bench/figures/demo.mjs
// Takes docs/figures/demo.png: the built demo page in headless Chromium, after it has learned the
// built-in stories. Run `npm run build -- --page` first.
import { join } from "node:path";
import { launch, openPage } from "../../scripts/browser.mjs";
import { main, root, step } from "../../scripts/lib.mjs";
import { serve } from "../../scripts/server.mjs";

const VIEW = { width: 1280, height: 800 };

await main(async () => {
  const server = await serve({ "/": join(root, "www", "dist") });
  const browser = await launch("chromium");
  try {
    const page = await openPage(browser, `${server.url}/#text-source=stories`);
    await page.setViewport(VIEW);
    await page.waitForFunction(() => !document.querySelector("#start").disabled);
    await page.click("#start");
    step("training");
    await page.waitForFunction(() => ["stopped", "error"].includes(document.body.dataset.state), {
      polling: 500,
      timeout: 900_000,
    });
    await page.screenshot({ path: join(root, "docs", "figures", "demo.png") });
  } finally {
    await browser.close();
    await server.close();
  }
});
