// The panel that teaches by hand, by its controls, in a real browser.
// reads: www
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { launch } from "../../scripts/browser.mjs";
import { root } from "../../scripts/lib.mjs";
import { serve } from "../../scripts/server.mjs";
import { longTest } from "../gate/core.mjs";
import { DESKTOP, Demo, PHONE, within } from "./demo-page.mjs";

const dist = join(root, "www", "dist");
const CALL = 120;
const hash = (source, steps, size) =>
  `#text-source=${source}&size=${size}&steps=${steps}&tokens-per-step=512&seed=3`;

class Teach {
  constructor(demo) {
    this.demo = demo;
  }

  get page() {
    return this.demo.page;
  }

  text(id) {
    return this.demo.text(`teach-${id}`);
  }

  /** Waits until the panel is ready again. */
  async ready(seconds = 240) {
    await this.demo.until(
      "ready panel",
      async () => {
        assert.equal(await this.text("error"), "", "the panel failed");
        return (await this.page.$eval("#teach-panel", (one) => one.dataset.state)) === "ready";
      },
      seconds,
    );
  }

  async press(id) {
    await this.demo.until(
      `enabled #teach-${id}`,
      async () => (await this.page.$(`#teach-${id}:enabled`)) !== null,
      30,
    );
    await this.demo.click(`teach-${id}`);
  }

  enabled() {
    return this.page.$$eval("#teach button[id]", (all) =>
      all
        .filter((one) => !one.matches(":disabled, [aria-disabled=true]") && !one.hidden)
        .map(({ id }) => id.replace("teach-", "")),
    );
  }

  /** Marks each sample of a list that has no mark: every other one is good. Gives how many there are. */
  mark(list) {
    return this.page.$$eval(`#${list} li`, (items) => {
      for (const [at, item] of items.entries()) {
        if (item.querySelector("[aria-pressed='true']")) continue;
        item.querySelector(at % 2 === 0 ? ".good" : ".bad").click();
      }
      return items.length;
    });
  }

  /** What has changed: the shares of each rule. */
  shares() {
    return this.page.$$eval("#teach-shares tbody tr", (rows) =>
      rows.map(({ dataset, cells }) => [dataset.rule, cells[1].textContent, cells[2].textContent]),
    );
  }
}

async function open(t, link, kind = "chromium") {
  const server = await serve({ "/": dist });
  t.after(() => server.close());
  const browser = await launch(kind, { seconds: CALL });
  t.after(() => browser.close());
  const demo = await within(CALL, "page", Demo.open(browser, `${server.url}/${link}`));
  await demo.untilState("idle");
  return { demo, teach: new Teach(demo) };
}

async function trained(demo) {
  await demo.click("start");
  await demo.untilState("stopped");
}

test("before there is a model of a text, the panel says what it needs", {
  timeout: 400_000,
}, async (t) => {
  const { demo, teach } = await open(t, hash("reverse", 2, "thimble"));
  await demo.page.click("#teach > summary");
  await demo.until("words", async () => /no model yet/.test(await teach.text("status")), 30);
  assert.deepEqual(await teach.enabled(), []);
  await trained(demo);
  const needs = async () => /problems with a right answer/.test(await teach.text("status"));
  await demo.until("words on problems", needs, 30);
  assert.deepEqual(await teach.enabled(), []);
  assert.deepEqual(demo.errors, [], "the page's console has errors");
});

/** A blind comparison says how it went once all are marked, and the next one is of other samples. */
async function compares(teach) {
  const begin = async () => {
    await teach.press("blind");
    await teach.ready();
    assert.match(await teach.text("blind-note"), /^16 are left to mark/);
    return teach.page.$$eval("#teach-blind-samples p", (all) => all.map((one) => one.textContent));
  };
  const first = await begin();
  assert.equal(await teach.mark("teach-blind-samples"), 16);
  const told = /^You liked (\d) of 8 from before, and (\d) of 8 from after\.$/;
  const [, before, after] = told.exec(await teach.text("blind-note"));
  assert.equal(Number(before) + Number(after), 8, "every other one was good");
  assert.notDeepEqual(await begin(), first);
}

longTest(
  "thumbs teach an adapter, what has changed is shown, and a blind comparison tells",
  {
    timeout: 1_200_000,
  },
  async (t) => {
    const { demo, teach } = await open(t, hash("stories", 40, "story-small"));
    await trained(demo);
    await demo.page.click("#teach > summary");
    await teach.ready();
    assert.match(await teach.text("status"), /First let it write/);
    assert.deepEqual(await teach.enabled(), ["write"]);
    await teach.press("write");
    await teach.ready();
    assert.match(await teach.text("status"), /^0 good, 0 bad\. Mark at least 2 of each kind/);
    assert.equal(await teach.mark("teach-samples"), 8);
    assert.match(await teach.text("status"), /^4 good, 4 bad/);
    await demo.page.click("#teach-samples li:first-child .good");
    assert.match(await teach.text("status"), /^3 good, 4 bad/, "pressed again, a thumb lets go");
    await demo.page.click("#teach-samples li:first-child .bad");
    assert.match(await teach.text("status"), /^3 good, 5 bad/);
    await demo.axe("light", "teach-marks");
    await demo.shot("teach-marks-light", DESKTOP, "#teach-panel");
    await demo.shot("teach-marks-phone", PHONE, "#teach-panel");
    await demo.page.setViewport(DESKTOP);

    await teach.press("start");
    const stop = async () => (await teach.enabled()).join() === "stop";
    await demo.until("nothing but stop", stop, 30);
    await teach.press("stop");
    await teach.ready();
    assert.match(await teach.text("status"), /^Stopped/);

    await teach.press("start");
    await teach.ready(600);
    assert.match(await teach.text("status"), /^Taught/);
    const shares = await teach.shares();
    assert.equal(shares.length, 7);
    for (const row of shares) assert.match(row.slice(1).join(), /^\d+ %,\d+ %$/);
    assert.ok(
      shares.some(([, before, after]) => before !== after),
      "something has changed",
    );
    assert.match(await teach.text("count"), /^Measured on 64 beginnings that nobody has marked/);
    await demo.axe("dark", "teach-change");
    await demo.shot("teach-change-dark", DESKTOP, "#teach-panel");

    await compares(teach);

    const zip = await demo.savedFile("#teach-save");
    assert.match(zip.name, /taught\.zip$/);
    assert.ok(zip.size > 10_000, `${zip.size} bytes`);
    await teach.press("forget");
    await teach.ready();
    assert.deepEqual(await teach.enabled(), ["write"]);
    assert.equal(await teach.page.$$eval("#teach-samples li", (all) => all.length), 0);
    assert.deepEqual(demo.errors, [], "the page's console has errors");
  },
);

longTest("Firefox: a rule rewards, and its share is told", { timeout: 1_200_000 }, async (t) => {
  const { demo, teach } = await open(t, hash("stories", 10, "story-small"), "firefox");
  await trained(demo);
  await demo.page.click("#teach > summary");
  await teach.ready();
  await demo.fill("teach-way", "dot");
  assert.deepEqual(await teach.enabled(), ["start"]);
  await teach.press("start");
  await teach.ready(900);
  assert.match(await teach.text("status"), /held for \d+ % of what it wrote, and holds for \d+ %/);
  assert.equal((await teach.shares())[0][0], "dot", "the rewarded rule stands first");
  assert.deepEqual(demo.errors, [], "the page's console has errors");
});
