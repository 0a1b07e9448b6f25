// node bench/figures/lessons.mjs [watch] [look] [layer] [step] [heart] [number]
// Walks through the six lessons on the built demo page in headless Chromium, as a pupil would, and takes a picture of each
// for docs/class.md. Prints how long each takes who answers at once, and what is said on its picture. Run
// `npm run build -- --page` first. Names choose among them.
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { launch, openPage } from "../../scripts/browser.mjs";
import { main, root, step } from "../../scripts/lib.mjs";
import { serve } from "../../scripts/server.mjs";

const dist = join(root, "www", "dist");
const WINDOW = { width: 1280, height: 800 };
/** Milliseconds that a lesson's run may take, and that threads and squares need to come to rest. */
const [PATIENCE, REST] = [900_000, 1000];

/** The worker as it is in a browser without WebGPU. */
function withoutGpu() {
  const name = readdirSync(join(dist, "assets")).find((one) => one.startsWith("model-worker-"));
  const code = readFileSync(join(dist, "assets", name));
  const lines = Buffer.from("delete WorkerNavigator.prototype.gpu;\n");
  return { [`/assets/${name}`]: Buffer.concat([lines, code]) };
}

/** A lesson, by what a pupil does. */
class Pupil {
  constructor(page) {
    this.page = page;
  }

  waits(condition, ...all) {
    return this.page.waitForFunction(condition, { polling: 100, timeout: PATIENCE }, ...all);
  }

  /** Guesses, by the place of the answer. */
  async guess(place) {
    await this.waits(() => document.querySelector(".lesson-choices button"));
    await this.page.$$eval(".lesson-choices button", (all, place) => all[place].click(), place);
  }

  async next() {
    const next = ".lesson-next button:not([hidden]):enabled:not([aria-disabled=true])";
    await this.page.waitForSelector(next, {
      timeout: PATIENCE,
    });
    await this.page.$eval(".lesson-next button", (one) => one.click());
  }

  /** Weaves a word of their own, and waits until the loom reads it. */
  async weaves(word) {
    await this.page.$eval(
      "#loom-word",
      (field, word) => {
        field.value = word;
        field.dispatchEvent(new Event("input", { bubbles: true }));
      },
      word,
    );
    await this.reads(word);
  }

  reads(text) {
    return this.waits(
      (text) => document.getElementById("loom-canvas").ariaLabel?.includes(text),
      text,
    );
  }
}

/** What a pupil does in each, up to its picture. */
const LESSONS = {
  async watch(pupil) {
    await pupil.guess(2);
    await pupil.waits(() => document.getElementById("time-range").max === "340");
    await pupil.page.$eval("#time-range", (range) => {
      range.value = "340";
      range.dispatchEvent(new Event("input", { bubbles: true }));
    });
    await pupil.next();
    await pupil.next();
    await pupil.weaves("ada");
    await pupil.next();
  },
  async look(pupil) {
    await pupil.guess(0);
    await pupil.reads("at step 340");
    await pupil.page.focus("#loom-canvas");
    for (const key of ["End", ...Array(3).fill("ArrowLeft")]) await pupil.page.keyboard.press(key);
    await pupil.next();
    await pupil.guess(0);
    await pupil.page.click("#card-cut");
    await pupil.next();
  },
  async layer(pupil) {
    await pupil.guess(2);
    await pupil.next();
    await pupil.guess(0);
    await pupil.next();
  },
  async step(pupil) {
    await pupil.guess(0);
    await pupil.next();
  },
  async heart(pupil) {
    await pupil.guess(1);
    await pupil.next();
    await pupil.next();
  },
  async number(pupil) {
    await pupil.guess(1);
    await pupil.next();
    await pupil.next();
    await pupil.weaves("314159");
  },
};

await main(async () => {
  const wanted = process.argv.slice(2);
  const trains = await serve({ "/": dist });
  const recorded = await serve({ "/": dist, ...withoutGpu() });
  const browser = await launch("chromium");
  try {
    for (const [at, [name, walk]] of Object.entries(LESSONS).entries()) {
      if (wanted.length > 0 && !wanted.includes(name)) continue;
      // The recording is the same for all, and quick.
      const { url } = name === "watch" ? recorded : trains;
      const page = await openPage(browser, "about:blank");
      await page.setViewport(WINDOW);
      const began = performance.now();
      await page.goto(`${url}/#lesson=${at + 1}`);
      await walk(new Pupil(page));
      const seconds = (performance.now() - began) / 1000;
      await new Promise((done) => setTimeout(done, REST));
      const path = join(root, "docs", "figures", `lesson-${name}.png`);
      await page.screenshot({ path, fullPage: true });
      const said = await page.$$eval(".lesson-words, #story", (all) =>
        all.map((one) => one.textContent).join(" | "),
      );
      step(`lesson ${at + 1}, ${name}: ${seconds.toFixed(0)} s; ${said}`);
      await page.close();
    }
  } finally {
    await browser.close();
    for (const server of [trains, recorded]) await server.close();
  }
});
