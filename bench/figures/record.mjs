// Records the opening run of the built demo page on this machine's GPU: `node bench/figures/record.mjs`. The page
// plays it until a visitor's own model begins. It writes www/src/recorded.json.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { launch, openPage } from "../../scripts/browser.mjs";
import { main, root, step } from "../../scripts/lib.mjs";
import { serve } from "../../scripts/server.mjs";

/** Steps after which not every one is kept. */
const [DENSE, THIN] = [100, 4];

/** Notes what happens in the page, with the milliseconds since the first step began. */
function listen() {
  globalThis.recorded = [];
  document.addEventListener("tinyloom:training", ({ detail }) => {
    globalThis.recorded.push([performance.now(), detail]);
  });
}

/** The event with numbers as short as the page shows them. */
function short(event) {
  const rounded = { ...event };
  for (const name of ["loss", "gradNorm", "learningRate"]) {
    if (name in event) rounded[name] = Number(event[name].toPrecision(4));
  }
  if (event.tokensPerSecond) rounded.tokensPerSecond = Math.round(event.tokensPerSecond);
  return rounded;
}

const kept = ({ type, step }) =>
  type !== "writing" &&
  type !== "stored" &&
  (type !== "step" || step <= DENSE || step % THIN === 0);

await main(async () => {
  const server = await serve({ "/": join(root, "www", "dist") });
  const browser = await launch("chromium");
  const page = await openPage(browser, "about:blank", (type, text) => {
    if (type === "error") throw new Error(text);
  });
  await page.evaluateOnNewDocument(listen);
  await page.goto(server.url);
  await page.waitForSelector("body[data-state=stopped]", { timeout: 300_000 });
  const events = await page.evaluate(() => globalThis.recorded);
  const adapter = await page.$$eval("#capabilities tr", (rows) =>
    Object.fromEntries(rows.map(({ cells }) => [cells[0].textContent, cells[1].textContent])),
  );
  const began = events[0][0];
  const number = (id) => page.$eval(id, (input) => input.valueAsNumber);
  const recording = {
    date: new Date().toISOString().slice(0, 10),
    adapter:
      process.argv[2] ?? (adapter.description || `${adapter.vendor} ${adapter.architecture}`),
    steps: await number("#steps"),
    tokensPerStep: await number("#tokens-per-step"),
    events: events
      .filter(([, event]) => kept(event))
      .map(([at, event]) => [Math.round(at - began), short(event)]),
  };
  writeFileSync(join(root, "www/src/recorded.json"), `${JSON.stringify(recording)}\n`);
  const scores = events.filter(([, { type }]) => type === "score");
  for (const [at, { step: steps, score }] of scores) {
    step(`${((at - began) / 1000).toFixed(2)} s, step ${steps}: ${score.right} of ${score.of}`);
  }
  step(
    `first event ${began.toFixed(0)} ms after navigation; ${adapter.vendor} ${adapter.architecture}`,
  );
  await browser.close();
  server.close();
});
