// The second visit without a network, in a real browser: the server is gone, and the page trains.
// reads: www
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { launch } from "../../scripts/browser.mjs";
import { root } from "../../scripts/lib.mjs";
import { serve } from "../../scripts/server.mjs";
import { CALL, Demo } from "./demo-page.mjs";

const dist = join(root, "www", "dist");
const LINK = "#text-source=reverse&size=thimble&steps=8&tokens-per-step=128&seed=3";

/** What the service worker has in its cache, by paths. */
const kept = (page) =>
  page.evaluate(async () => {
    const names = await caches.keys();
    const all = await Promise.all(names.map(async (name) => (await caches.open(name)).keys()));
    return all.flat().map(({ url }) => new URL(url).pathname);
  });

const OFFLINE = /^This part of the page did not load: there is no network, or /;
/** What the browser itself says of a server that is gone, also of the service worker. */
const REFUSED =
  /ERR_(CONNECTION_REFUSED|EMPTY_RESPONSE)|An unknown error occurred when fetching the script/;

/** The server goes while the page is open, which has not kept all parts yet: each says so, and nothing else fails. */
async function withoutParts(browser) {
  const server = await serve({ "/": dist });
  const demo = await Demo.open(browser, server.url);
  await demo.until("a first step", async () => (await demo.step()) > 0);
  assert.deepEqual(await kept(demo.page), [], "no part is kept until the first run has ended");
  await server.close();
  assert.equal(await demo.page.evaluate(() => navigator.onLine), true, "there is a network");
  const says = (id) => demo.until(id, async () => OFFLINE.test(await demo.text(id)), 60);
  await demo.click("tour");
  await says("status");
  for (const part of ["tune", "teach"]) {
    await demo.page.click(`#${part} summary`);
    await says(`${part}-error`);
  }
  await demo.click("stop");
  await demo.untilState("stopped");
  await demo.click("benchmark");
  await says("error");
  await demo.fill("text-source", "shakespeare");
  await demo.fill("size", "thimble");
  await demo.click("start");
  await demo.until("refusal", async () => /^That did not work/.test(await demo.text("status")));
  await says("error");
  assert.equal(await demo.state(), "stopped", "the run of before stays");
  assert.deepEqual(
    demo.errors.filter((text) => !REFUSED.test(text)),
    [],
    "the page's console has errors",
  );
  await demo.page.close();
}

test("after one visit the page works without a network, in all its parts", {
  timeout: 600_000,
}, async (t) => {
  const browser = await launch("chromium", { seconds: CALL });
  t.after(() => browser.close());
  await withoutParts(browser);
  const asked = [];
  // Below a path, as a project's page on a static host is.
  const server = await serve(
    { "/a/b": dist },
    { onRequest: ({ url }) => asked.push(url.replace(/\?.*/, "")) },
  );
  const demo = await Demo.open(browser, `${server.url}/a/b/${LINK}`);
  await demo.untilState("idle");
  const files = readdirSync(join(dist, "assets")).filter(
    (name) => !/^(headless|packed|worker-thread)-/.test(name),
  );
  await demo.until("everything", async () => (await kept(demo.page)).length >= files.length, 120);
  const paths = await kept(demo.page);
  for (const name of files) assert.ok(paths.includes(`/a/b/assets/${name}`), name);
  await demo.page.waitForFunction(async () => {
    const { active } = await navigator.serviceWorker.ready;
    return active?.state === "activated";
  });
  await server.close();
  const before = asked.length;

  // An address that the server never saw: the page is the same.
  await demo.page.goto(`${server.url}/a/b/?second${LINK}`);
  await demo.untilState("idle");
  await demo.click("start");
  await demo.untilState("stopped");
  assert.equal(await demo.step(), 8, "it trains");
  await demo.page.click("#tour");
  await demo.appears(".driver-popover");
  await demo.page.keyboard.press("Escape");
  await demo.page.click("#share-open");
  await demo.appears("#share-picture:enabled");
  await demo.page.keyboard.press("Escape");
  await demo.page.click("#tune summary");
  await demo.appears('#tune-panel:not([data-state="waiting"])');
  await demo.fill("text-source", "shakespeare");
  await demo.fill("size", "thimble");
  await demo.fill("steps", "2");
  await demo.click("start");
  await demo.until("a run on Shakespeare", async () =>
    (await demo.runs()).some(({ learned }) => learned.startsWith("Shakespeare")),
  );
  await demo.untilState("stopped");
  assert.equal(asked.length, before, "the server was asked for nothing");
  const gone = demo.errors.filter(
    (text) => !/service-worker\.js|ERR_CONNECTION_REFUSED/.test(text),
  );
  assert.deepEqual(gone, [], "the page's console has errors");
});

/** The version that the page says it is of, and the state of its service workers. */
const version = (page) =>
  page.evaluate(async () => {
    const kept = await navigator.serviceWorker.getRegistration();
    return { title: document.title, waits: Boolean(kept?.waiting), active: kept?.active?.state };
  });

test("a new version of the page is there at the visit after the one that fetched it", {
  timeout: 300_000,
}, async (t) => {
  const files = ["index.html", "service-worker.js"];
  const [html, worker] = files.map((name) => readFileSync(join(dist, name), "utf8"));
  const mounts = {
    "/": dist,
    "/index.html": Buffer.from(html),
    "/service-worker.js": Buffer.from(worker),
  };
  const server = await serve(mounts);
  t.after(() => server.close());
  const browser = await launch("chromium", { seconds: CALL });
  t.after(() => browser.close());
  const url = `${server.url}/index.html?`;
  const demo = await Demo.open(browser, `${url}1${LINK}`);
  await demo.untilState("idle");
  await demo.until("a worker", async () => (await version(demo.page)).active === "activated", 120);
  const { title } = await version(demo.page);

  mounts["/index.html"] = Buffer.from(
    html.replace(/<title>.*<\/title>/, "<title>Version 2</title>"),
  );
  const [, revision] = /"url":"index\.html","revision":"([0-9a-f]{16})"/.exec(worker);
  mounts["/service-worker.js"] = Buffer.from(worker.replace(revision, "0".repeat(16)));
  await demo.page.goto(`${url}2${LINK}`);
  await demo.untilState("idle");
  assert.equal((await version(demo.page)).title, title, "this visit has what was kept");
  await demo.page.evaluate(async () => (await navigator.serviceWorker.getRegistration()).update());
  await demo.until("the new version", async () => (await version(demo.page)).waits, 120);

  const other = await demo.page.browserContext().newPage();
  await other.goto(`${server.url}/lessons.html`);
  await demo.page.goto(`${url}3${LINK}`);
  await demo.untilState("idle");
  const beside = await version(demo.page);
  assert.deepEqual([beside.title, beside.waits], [title, true], "it waits for the other tab");
  await other.close();

  const asked = [];
  demo.page.on("request", (request) => asked.push(new URL(request.url()).pathname));
  await demo.page.goto(`${url}4${LINK}`);
  // The page loads itself once more meanwhile: what is asked of it in that moment has no answer.
  const second = () => document.title.startsWith("Version 2");
  await demo.page.waitForFunction(second, { timeout: CALL * 1000 });
  await demo.untilState("idle");
  assert.equal((await version(demo.page)).waits, false);
  const before = asked.slice(0, asked.lastIndexOf("/index.html"));
  assert.equal(before[0], "/index.html");
  const more = before.filter((path) => /\/(page|model-worker|recorded)-/.test(path));
  assert.deepEqual(more, [], "the old version asks for no more while its worker ends");
});
