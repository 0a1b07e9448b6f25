// What can be taken along of a moment, and the second visit without a network, in a real browser. Without WebGPU, where
// the recording is all there is: the parts are the same.
// reads: www tests/page/no-gpu.mjs
import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { target } from "../../scripts/lib.mjs";
import { within } from "./demo-page.mjs";
import { openWithoutGpu, untilHolds } from "./no-gpu.mjs";

/** Parts of the stage that a visit without a network uses. */
const STEP = 300;

/** Seconds before the clip's end in which its last picture is shown. */
const NEAR = 1;

/** Sets the clock of a recording, and waits until its questions were asked. */
async function goTo(demo, step) {
  await demo.fill("time-range", String(step));
  await untilHolds("questions", async () =>
    (await demo.text("squares-count")).includes(`at step ${step}`),
  );
}

/** The size of a PNG, from its header. */
function sizeOf(png) {
  assert.equal(png.subarray(1, 4).toString(), "PNG");
  return [png.readUInt32BE(16), png.readUInt32BE(20)];
}

const bytesOf = async (file) => Buffer.from(await file.arrayBuffer());

async function files(demo) {
  const picture = await demo.savedFile("#share-picture");
  assert.equal(picture.name, `tinyloom-reverse-step-${STEP}.png`);
  const png = await bytesOf(picture);
  assert.deepEqual(sizeOf(png), [1200, 630]);
  mkdirSync(join(target, "screenshots"), { recursive: true });
  writeFileSync(join(target, "screenshots", "share-picture.png"), png);

  const svg = (await bytesOf(await demo.savedFile("#share-svg"))).toString();
  const { error, letters, threads } = await demo.page.evaluate((text) => {
    const parsed = new DOMParser().parseFromString(text, "image/svg+xml");
    return {
      error: parsed.querySelector("parsererror")?.textContent,
      letters: [...parsed.querySelectorAll("text")].map((one) => one.textContent),
      threads: [...parsed.querySelectorAll("path")].filter((one) =>
        one.getAttribute("d").includes("C"),
      ).length,
    };
  }, svg);
  assert.equal(error, undefined);
  assert.ok(letters.join("").includes("tenalp⏎"), letters.join(""));
  assert.ok(threads > 8, `${threads} paths of threads`);

  const curve = (await bytesOf(await demo.savedFile("#share-curve"))).toString().split("\r\n");
  assert.equal(curve[0], "step,loss in nats per letter,right of 128");
  const row = curve.find((line) => line.startsWith(`${STEP},`)).split(",");
  assert.match(row[1], /^0\.\d+$/);
  assert.equal(row[2], /^\d+/.exec(await demo.text("squares-count"))[0]);

  const answers = (await bytesOf(await demo.savedFile("#share-answers"))).toString().split("\r\n");
  assert.equal(answers.length, 130, "a head, 128 questions, and the end");
  const rows = answers.slice(1, -1).map((line) => line.split(","));
  for (const [asked, wanted, , is] of rows) {
    assert.equal(wanted, [...asked.slice(0, -1)].reverse().join(""));
    assert.match(is, /^(yes|no)$/);
  }
  assert.equal(String(rows.filter(([, , , is]) => is === "yes").length), row[2]);
  for (const [, wanted, given, is] of rows) assert.equal(given === wanted, is === "yes");
}

/** A clip is looked at to see how long it takes, and that it begins with another picture than it ends with. */
async function clip(demo) {
  const made = await demo.savedFile("#share-clip");
  const base64 = (await bytesOf(made)).toString("base64");
  const seen = await demo.page.evaluate(
    async (source, NEAR) => {
      const video = document.createElement("video");
      video.muted = true;
      const canvas = document.createElement("canvas");
      [canvas.width, canvas.height] = [120, 63];
      const context = canvas.getContext("2d", { willReadFrequently: true });
      await new Promise((done, fail) => {
        video.onloadeddata = done;
        video.onerror = () => fail(new Error(video.error.message));
        video.src = source;
      });
      const size = [video.videoWidth, video.videoHeight];
      const picture = () => {
        context.drawImage(video, 0, 0, 120, 63);
        return [...context.getImageData(0, 0, 120, 63).data];
      };
      const seek = async (seconds) => {
        const sought = new Promise((done) => {
          video.onseeked = done;
        });
        video.currentTime = seconds;
        await sought;
      };
      const first = picture();
      // A recorder's file has no length: its end is found by going there.
      await seek(1e6);
      const end = video.currentTime;
      // A video that has sought may go on showing the picture before: then it seeks again.
      for (let shown = 0, tries = 1; shown < end - NEAR; tries++) {
        const told = new Promise((done) => {
          video.requestVideoFrameCallback((_, { mediaTime }) => done(mediaTime));
          setTimeout(done, 1000, 0);
        });
        await seek(end - (NEAR * (1 + (tries % 3))) / 4);
        shown = await told;
      }
      const last = picture();
      const differ = first.filter((value, index) => Math.abs(value - last[index]) > 24).length;
      return { size, end, differ };
    },
    `data:${made.name.endsWith("mp4") ? "video/mp4" : "video/webm"};base64,${base64}`,
    NEAR,
  );
  assert.deepEqual(seen.size, [1200, 630]);
  assert.ok(seen.end > 8.5 && seen.end < 13, `${seen.end} s`);
  assert.ok(seen.differ > 100, `${seen.differ} numbers of its first and last picture differ`);
}

test("a moment becomes a picture, a drawing, tables, a clip and a link", {
  timeout: 300_000,
}, async (t) => {
  const { demo } = await openWithoutGpu(t);
  await untilHolds(
    "all of it",
    async () => (await demo.page.$eval("#time-range", (one) => one.max)) === "340",
  );
  await goTo(demo, STEP);
  await demo.page.click("#share-open");
  await demo.page.waitForSelector("#share-picture:enabled");
  await demo.axe("light", "share");
  await demo.axe("dark", "share");
  await files(demo);
  await demo.page.click("#share-link");
  await demo.page.waitForSelector("#share-address:not([hidden])");
  assert.match(await demo.text("share-address"), /#text-source=reverse&size=thimble&.*&step=300$/);
  const focused = () => demo.page.evaluate(() => document.activeElement.id);
  await demo.page.focus("#share-clip");
  await within(60, "clip", clip(demo));
  assert.equal(await focused(), "share-clip", "the focus stays where it was");
  await demo.page.keyboard.press("Escape");
  assert.ok(!(await demo.page.$("#share:popover-open")), "Escape closes it");
  assert.equal(await focused(), "share-open");
  assert.deepEqual(demo.errors, [], "the page's console has errors");
});
