// node bench/figures/demo.mjs [loom] [opening] [tuning]
// Takes the pictures of docs/figures from the built demo page in headless Chromium: demo-phone.png ten seconds after it was
// opened, demo-inside.png of the run with which it opens, demo-tune.png of that run fine-tuned. Run
// `npm run build -- --page` first. Names choose among them. moving.mjs films the page for the README.
import { join } from "node:path";
import { launch, openPage } from "../../scripts/browser.mjs";
import { main, root, step } from "../../scripts/lib.mjs";
import { serve } from "../../scripts/server.mjs";

const WIDE = { width: 1280, height: 800 };
const PHONE = { width: 390, height: 844, deviceScaleFactor: 2 };
/** Milliseconds that a run may take. */
const PATIENCE = 900_000;

const file = (name) => join(root, "docs", "figures", `${name}.png`);

const ended = (page) =>
  page.waitForFunction(() => ["stopped", "error"].includes(document.body.dataset.state), {
    polling: 500,
    timeout: PATIENCE,
  });

/** The page on a phone, ten seconds after it was opened: the recording, while a model of its own begins. */
async function loom(browser, url) {
  const page = await openPage(browser, "about:blank");
  await page.setViewport(PHONE);
  await page.goto(`${url}/`);
  await new Promise((done) => setTimeout(done, 10_000));
  await page.screenshot({ path: file("demo-phone") });
  await page.close();
}

/** The page after the run with which it opens: its layers in the dark. */
async function opening(browser, url) {
  const page = await openPage(browser, `${url}/`);
  step("learns to reverse words");
  await ended(page);
  await page.setViewport(WIDE);
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: "dark" }]);
  await page.$eval("#inside", (panel) => {
    panel.open = true;
  });
  await page.waitForSelector("#inside-view:not([hidden])");
  await page.click('#layers [data-place="1"]');
  await page.waitForSelector('#layers [data-place="1"][aria-pressed="true"]');
  const panel = await page.evaluateHandle(() =>
    document.querySelector("#inside").closest(".panel"),
  );
  await panel.screenshot({ path: file("demo-inside") });
  await page.close();
}

/** The model of the run with which it opens, fine-tuned on the built-in example. */
async function tuning(browser, url) {
  const page = await openPage(browser, `${url}/`);
  await page.setViewport(WIDE);
  await ended(page);
  step("fine-tunes");
  await page.click("#tune summary");
  await page.waitForSelector("#tune-start:enabled");
  await page.click("#tune-start");
  await page.waitForFunction(
    () => /^Done/.test(document.querySelector("#tune-status").textContent),
    { polling: 500, timeout: PATIENCE },
  );
  await (await page.$("#tune-panel")).screenshot({ path: file("demo-tune") });
  await page.close();
}

const PICTURES = { loom, opening, tuning };

await main(async () => {
  const wanted = process.argv.slice(2);
  const server = await serve({ "/": join(root, "www", "dist") });
  const browser = await launch("chromium");
  try {
    for (const [name, take] of Object.entries(PICTURES)) {
      if (wanted.length === 0 || wanted.includes(name)) await take(browser, server.url);
    }
  } finally {
    await browser.close();
    await server.close();
  }
});
