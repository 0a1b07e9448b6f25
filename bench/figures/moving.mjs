// node bench/figures/moving.mjs
// Films the built demo page for the README, docs/figures/demo.webp: the recording that the page opens with, from its first
// step to its last. The page's own training is held back, and its clock is moved by hand: one machine films what another
// does. Run `npm run build -- --page` and `npm run figures` first; the second installs what encodes the pictures.
import { statSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { launch } from "../../scripts/browser.mjs";
import { Failure, main, root, step } from "../../scripts/lib.mjs";
import { serve } from "../../scripts/server.mjs";

const file = join(root, "docs", "figures", "demo.webp");
/** The page's width and height, and how much of it the film shows: the loom. */
const [WIDTH, HEIGHT, SHOWN] = [1040, 900, 852];
/** The film's width. */
const SMALL = 832;
/** Pictures in all, and milliseconds that one stays. */
const [PICTURES, EACH] = [48, 200];
/** Milliseconds that the last picture stays. */
const LAST = 4000;
/** The step that is shown grows with this power of the time, so that early steps take longer. The page does the same. */
const SLOW_START = 1.7;
/** Bytes that the README may load for it. */
const MOST = 600_000;

/** Runs in the page before its own scripts: time stands still until `tick` is called. */
function holdClock() {
  let now = 0;
  let waiting = [];
  performance.now = () => now;
  window.requestAnimationFrame = (call) => waiting.push(call);
  window.tick = (milliseconds) => {
    now += milliseconds;
    const calls = waiting;
    waiting = [];
    for (const call of calls) call(now);
  };
}

/** Moves the handle to a step, and waits until the weights of that time are woven and all words asked. */
async function goTo(page, at) {
  await page.$eval(
    "#time-range",
    (range, value) => {
      range.value = value;
      range.dispatchEvent(new Event("input", { bubbles: true }));
    },
    String(at),
  );
  await page.waitForFunction(
    () => {
      window.tick(1);
      const { step } = document.getElementById("loom").dataset;
      const asked = document.getElementById("squares-count").textContent;
      const woven = document.getElementById("loom-canvas").getAttribute("aria-label");
      return asked.endsWith(` at step ${step}`) && woven.includes(` at step ${step}:`);
    },
    { polling: 20 },
  );
}

async function film(page, url) {
  await page.setViewport({ width: WIDTH, height: HEIGHT });
  await page.evaluateOnNewDocument(holdClock);
  await page.setRequestInterception(true);
  page.on("request", (request) => {
    // Without its module the page's own model is about to begin, and stays so.
    if (!request.url().endsWith(".wasm")) request.continue();
  });
  await page.goto(`${url}/`);
  await page.waitForFunction(
    () => {
      window.tick(20);
      return document.getElementById("squares-count").textContent.includes(" at step ");
    },
    { polling: 20 },
  );
  const steps = await page.$eval("#time-range", ({ max }) => Number(max));
  const clip = { x: 0, y: 0, width: WIDTH, height: SHOWN };
  const pictures = [];
  for (let i = 0; i < PICTURES; i++) {
    await goTo(page, Math.round(steps * (i / (PICTURES - 1)) ** SLOW_START));
    await page.evaluate((each) => {
      for (let part = 0; part < 4; part++) window.tick(each / 4);
    }, EACH);
    pictures.push(await page.screenshot({ type: "png", clip }));
  }
  return pictures;
}

await main(async () => {
  const require = createRequire(join(root, "bench", "figures", "moving.mjs"));
  const sharp = require("sharp");
  const server = await serve({ "/": join(root, "www", "dist") });
  const browser = await launch("chromium");
  try {
    step("filming the recording");
    const pictures = await film(await browser.newPage(), server.url);
    step(`encoding ${pictures.length} pictures`);
    const delay = pictures.map((_, i) => (i === pictures.length - 1 ? LAST : EACH));
    const small = (png) => sharp(png).resize({ width: SMALL }).png().toBuffer();
    await sharp(await Promise.all(pictures.map(small)), { join: { animated: true } })
      .webp({ quality: 50, effort: 6, minSize: true, loop: 0, delay })
      .toFile(file);
  } finally {
    await browser.close();
    await server.close();
  }
  const { size } = statSync(file);
  step(`docs/figures/demo.webp: ${PICTURES} pictures, ${size} bytes`);
  if (size > MOST) throw new Failure(`it has more than ${MOST} bytes`);
});
