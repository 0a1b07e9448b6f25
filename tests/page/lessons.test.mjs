// The lessons, in a real browser: each hides the rest, asks before it tells, and ends with the pupil's own picture.
// reads: www tests/page/no-gpu.mjs tests/page/page-module.mjs
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { launch } from "../../scripts/browser.mjs";
import { root } from "../../scripts/lib.mjs";
import { serve } from "../../scripts/server.mjs";
import { CALL, Demo, PHONE } from "./demo-page.mjs";
import { openWithoutGpu, untilHolds } from "./no-gpu.mjs";
import { pageModule } from "./page-module.mjs";

const { EXIT, lessons } = await pageModule("src/lessons/lessons");

const words = (demo) => demo.page.$eval(".lesson-words", (one) => one.textContent);
const says = (demo, pattern) =>
  untilHolds(
    `${pattern}`,
    async () => (await demo.page.$(".lesson-words")) && pattern.test(await words(demo)),
  );

/** Presses what has this text in the lesson. */
const press = (demo, text) =>
  demo.page.$$eval(
    "#lesson button:not([hidden])",
    (all, text) =>
      all
        .find((one) => one.textContent === text && !one.matches(":disabled, [aria-disabled=true]"))
        .click(),
    text,
  );
const canGoOn = (demo) =>
  demo.page.$eval(
    ".lesson-next button",
    (one) => !one.hidden && !one.matches(":disabled, [aria-disabled=true]"),
  );
const goesOn = async (demo) => {
  await untilHolds("way on", () => canGoOn(demo));
  await press(demo, "Next");
};

/** The picture at the end is one of the pupil's own moment. */
async function picture(demo, number) {
  const file = await demo.savedFile("#lesson-picture");
  assert.match(file.name, new RegExp(`^lesson-${number}-tinyloom-.*\\.png$`));
  const bytes = Buffer.from(await file.arrayBuffer());
  assert.deepEqual([bytes.readUInt32BE(16), bytes.readUInt32BE(20)], [1200, 630]);
}

test("the lessons take 45 minutes, ask first, and end with a picture", () => {
  assert.equal(lessons.length, 6);
  assert.equal(
    lessons.reduce((sum, { minutes }) => sum + minutes, EXIT),
    45,
  );
  for (const { title, parts, shows, answer } of lessons) {
    assert.ok(parts[0].answers.length >= 3, `${title} asks first`);
    assert.ok(parts.at(-1).picture, `${title} ends with a picture`);
    assert.ok(shows !== "" && answer !== "", title);
  }
});

test("the first lesson waits where nothing is shown yet", () => {
  const [, part] = lessons[0].parts;
  const facts = { right: undefined, of: 0, recorded: true, trains: false };
  assert.equal(part.until.is(facts), false);
  assert.equal(part.until.is({ ...facts, right: 63, of: 128 }), false);
  assert.equal(part.until.is({ ...facts, right: 64, of: 128 }), true);
});

/** Where does it look: a letter is clicked, its threads are cut, and the squares tell. */
async function looks(demo) {
  await says(demo, /Which letter of the word does it have to look at/);
  const hidden = await demo.page.$$eval("#chips, #workshop, #loom-switch, #loom-form", (all) =>
    all.every((one) => getComputedStyle(one).display === "none"),
  );
  assert.ok(hidden, "what does not belong to the lesson");
  assert.equal(await canGoOn(demo), false, "a guess comes before what it tells");
  for (const theme of ["dark", "light"]) await demo.axe(theme, "lesson");
  await demo.shot("lesson-light", { width: 1440, height: 900 });
  await demo.shot("lesson-phone", PHONE);
  await demo.page.setViewport({ width: 1280, height: 800 });
  await press(demo, "the 1st, p");
  await says(demo, /^Look for yourself/);
  assert.equal(await canGoOn(demo), false, "it waits for the click");
  const next = () => document.activeElement.matches(".lesson-next button");
  assert.ok(await demo.page.evaluate(next), "keys go on at the button that waits");
  await demo.page.focus("#loom-canvas");
  await demo.page.keyboard.press("End");
  for (let left = 0; left < 3; left++) await demo.page.keyboard.press("ArrowLeft");
  await goesOn(demo);
  await says(demo, /^You said: “the 1st, p”\..*heads read the 3rd letter/);
  await press(demo, "Nothing: the other heads do it");
  await says(demo, /^Cut them/);
  await demo.click("card-cut");
  await goesOn(demo);
  await says(demo, /^You said: “Nothing.*it answers \d+ of 128\./);
  await shot(demo, "2-cut");
  const right = Number(/answers (\d+) of/.exec(await words(demo))[1]);
  assert.ok(
    right < 64,
    `${right} right without these threads: most squares turn grey, as the answer says`,
  );
  await goesOn(demo);
  assert.ok(
    await demo.page.$eval("#loom-form", (one) => one.checkVisibility()),
    "a word of one's own",
  );
  await picture(demo, 2);
}

/** A picture of a lesson, as a class sees it. */
const shot = (demo, name) => demo.shot(`lesson-${name}`, { width: 1280, height: 800 });

test("without WebGPU lessons 1 and 2 work, and the others say what they need", {
  timeout: 300_000,
}, async (t) => {
  const { demo, server } = await openWithoutGpu(t, "#lesson=2");
  await looks(demo);
  await demo.page.evaluate(() => document.querySelector(".lesson-on").click());
  await says(demo, /^This lesson trains a model, for which this browser offers no GPU/);
  await demo.page.evaluate(() => {
    location.hash = "#lesson=1";
  });
  await says(demo, /Will it ever reverse a word/);
  await press(demo, "Yes, from the first step on");
  await demo.fill("time-range", "340");
  await goesOn(demo);
  await says(demo, /^You said: “Yes, from the first step on”.*At step 340 it answers 12\d of 128/);
  await goesOn(demo);
  assert.equal(await canGoOn(demo), false);
  await demo.fill("loom-word", "ada");
  await goesOn(demo);
  await shot(demo, "1-end");
  await picture(demo, 1);
  assert.equal(await demo.page.title(), `${lessons[0].title}, tinyloom`);
  await demo.page.evaluate(() => {
    location.hash = "#text-source=reverse&step=120";
  });
  await untilHolds("the end of the lesson", () => demo.page.$eval("#lesson", (one) => one.hidden));
  const left = await demo.page.evaluate(() => Object.keys(document.body.dataset));
  assert.ok(!left.some((name) => name.startsWith("lesson")), left.join());
  assert.ok(!(await demo.page.title()).startsWith(lessons[0].title), await demo.page.title());
  assert.deepEqual(demo.errors, [], "the page's console has errors");

  await demo.page.goto(`${server.url}/lessons.html`);
  const listed = await demo.page.$$eval("#lessons h2 a", (all) => all.map((one) => one.hash));
  assert.deepEqual(listed, [
    "#lesson=1",
    "#lesson=2",
    "#lesson=3",
    "#lesson=4",
    "#lesson=5",
    "#lesson=6",
  ]);
  assert.equal(await demo.text("minutes"), "45");
  const open = await demo.page.$$eval("details[open]", (all) => all.length);
  assert.equal(open, 0, "answers are folded");
  await demo.page.$$eval("details", (all) => {
    for (const one of all) one.open = true;
  });
  await demo.page.evaluate(() => {
    document.body.dataset.state = "lessons";
  });
  await demo.axe("light", "lessons");
  await demo.axe("dark", "lessons");
  await demo.shot("lessons-page", { width: 1440, height: 900 });
  await demo.shot("lessons-page-phone", PHONE);
});

test("a lesson trains a model of its own, and tells of it", { timeout: 600_000 }, async (t) => {
  const server = await serve({ "/": join(root, "www", "dist") });
  t.after(() => server.close());
  const browser = await launch("chromium", { seconds: CALL });
  t.after(() => browser.close());
  const demo = await Demo.open(browser, `${server.url}/#lesson=4`);
  await says(demo, /What will the curve of its surprise do/);
  await press(demo, "Fall sixty times as fast");
  await demo.untilState("training");
  assert.equal(await demo.text("size"), "hot");
  assert.equal(await demo.text("steps"), "150");
  await demo.until("its end", () => canGoOn(demo), 300);
  await press(demo, "Next");
  await says(
    demo,
    /^You said: “Fall sixty times as fast”\. Its surprise is \d\.\d\d, and it answers \d of 128\./,
  );
  await shot(demo, "4-end");
  const surprise = Number(/surprise is (\d\.\d\d)/.exec(await words(demo))[1]);
  assert.ok(surprise > 2.8 && surprise < 3.8, `${surprise}: about 3.1, as the lesson says`);
  await goesOn(demo);
  await picture(demo, 4);
  // The values of each lesson are ones that the form takes.
  for (const { title, run } of lessons) {
    if (!run) continue;
    const taken = await demo.page.evaluate((run) => {
      for (const [id, value] of Object.entries(run)) {
        const field = document.getElementById(id);
        field.value = value;
        field.dispatchEvent(new Event("change"));
      }
      return Object.keys(run).map((id) => [id, document.getElementById(id).value]);
    }, run);
    assert.deepEqual(Object.fromEntries(taken), run, title);
  }
  assert.deepEqual(demo.errors, [], "the page's console has errors");
});
