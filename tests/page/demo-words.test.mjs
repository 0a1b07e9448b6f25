// What the demo page tells a visitor of a failure: advice for their browser and system, or nothing where the
// library's message serves.
// reads: www
import assert from "node:assert/strict";
import { test } from "node:test";
import { pageModule } from "./page-module.mjs";

const { goneWords, wordsFor } = await pageModule("src/words");

const CHROME = "AppleWebKit/537.36 (KHTML, like Gecko) Chrome/156.0.0.0 Safari/537.36";
/** What has to be in the advice, by the browser's name of itself. */
const ADVICE = [
  [`Mozilla/5.0 (X11; Linux x86_64) ${CHROME}`, "chrome://flags"],
  [`Mozilla/5.0 (Windows NT 10.0; Win64; x64) ${CHROME} Edg/156.0.0.0`, "version 113"],
  [
    `Mozilla/5.0 (Linux; Android 10; K) ${CHROME.replace("Safari", "Mobile Safari")}`,
    "version 121",
  ],
  ["Mozilla/5.0 (X11; Linux x86_64; rv:153.0) Gecko/20100101 Firefox/153.0", "dom.webgpu.enabled"],
  ["Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:130.0) Gecko/20100101 Firefox/130.0", "141"],
  ["Mozilla/5.0 (Android 14; Mobile; rv:153.0) Gecko/153.0 Firefox/153.0", "Use Chrome"],
  [
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.0 Safari/605.1.15",
    "Safari has WebGPU from version 26",
  ],
  [
    "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.0 Mobile/15E148 Safari/604.1",
    "iOS or iPadOS 26",
  ],
  ["", "Use a current"],
];

test("what a browser says of a lost GPU is a part of a sentence", () => {
  for (const said of ["Destroyed: Device was destroyed.", "Destroyed: Device was destroyed"]) {
    const whole = "Destroyed: Device was destroyed; reload the page to go on";
    assert.equal(goneWords(said, ""), whole);
    assert.equal(
      goneWords(said, "; its last snapshot was not kept: x"),
      `${whole}; its last snapshot was not kept: x`,
    );
  }
});

test("without WebGPU the advice is for the browser and the system", () => {
  for (const [userAgent, words] of ADVICE) {
    const said = wordsFor("webgpu-unavailable", { userAgent, secure: true });
    assert.ok(said.includes(words), `${userAgent}: ${said}`);
    const insecure = wordsFor("webgpu-unavailable", { userAgent, secure: false });
    assert.ok(insecure.includes("https") && !insecure.includes(words), insecure);
  }
});

test("other failures have words of their own, or the library's", () => {
  const here = { userAgent: ADVICE[0][0], secure: true };
  assert.match(wordsFor("non-finite", here), /learning rate/);
  assert.match(wordsFor("invalid-checkpoint", here), /damaged/);
  assert.match(wordsFor("adapter-unavailable", here), /chrome:\/\/gpu/);
  assert.equal(wordsFor("invalid-options", here), undefined);
});
