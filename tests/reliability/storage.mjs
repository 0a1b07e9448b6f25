// Tabs that are killed while a worker of theirs writes checkpoints: by the process id of the tab, at random
// moments. `npm run reliability -- storage` runs 50 of them and keeps the result.
import { openPage } from "../../scripts/browser.mjs";
import { withPage } from "../lanes/harness.mjs";
import { numbers } from "../random.mjs";
import { keep } from "./results.mjs";

/** Steps of the run that is trained again and again. */
const STEPS = 60;
/** Tabs that are killed. */
const COUNT = 50;
/** Longest time from the first step after a start to the kill, in milliseconds. */
const LONGEST = 1500;

/** In the tab: goes on with the run, or begins it, saving after every step; tells of each step. */
async function train(base, steps) {
  const { connect } = await import(`${base}/pkg/worker/index.js`);
  const kit = await import(`${base}/tests/api/bodies/kit.mjs`);
  const { originDisk } = await import(`${base}/tests/storage/bodies/storage.mjs`);
  const config = { ...kit.config, hidden_size: 128, intermediate_size: 256 };
  const tinyloom = await connect();
  const { Runtime, Model, Trainer, Runs } = tinyloom;
  const runtime = await Runtime.create();
  const data = await kit.dataset(tinyloom);
  const runs = await Runs.open("killed");
  const there = (await runs.list()).some(({ name }) => name === "one");
  const paths = there ? await originDisk.list("killed") : [];
  const run = there ? await runs.open("one") : await runs.create("one");
  const whole = await run.checkpoints();
  const trainer = whole[0]
    ? await Trainer.resume(runtime, run)
    : await Trainer.create(await Model.create(runtime, config, { seed: 1 }), {
        ...kit.trainerOptions,
        totalSteps: steps,
      });
  const folders = new Set(paths.flatMap((path) => /\/(c\d+)\//.exec(path)?.[1] ?? []));
  const opened = { step: trainer.steps, problems: run.problems, half: folders.size - whole.length };
  await globalThis.tell({ opened });
  if (trainer.steps < steps) {
    for await (const { step, loss } of trainer.run(data, {
      until: steps,
      checkpoint: { run, every: 1 },
    })) {
      await globalThis.tell({ step, loss });
    }
  }
  await run.close();
  await runs.delete("one");
  await globalThis.tell({ ended: true });
}

/** Processor time of each of the browser's renderer processes, by process id. */
async function renderers(browser) {
  const session = await browser.target().createCDPSession();
  const { processInfo } = await session.send("SystemInfo.getProcessInfo");
  await session.detach();
  const found = processInfo.filter(({ type }) => type === "renderer");
  return new Map(found.map(({ id, cpuTime }) => [id, cpuTime]));
}

/**
 * Ends the process of a tab, and waits until the browser has noticed.
 *
 * @param before - of `renderers`, from before the tab was opened: its process is the one that has worked since.
 */
async function kill(tab, before) {
  const now = await renderers(tab.browser());
  const worked = ([id, time]) => time - (before.get(id) ?? 0);
  const [[id]] = [...now].sort((a, b) => worked(b) - worked(a));
  const gone = new Promise((done) => tab.once("error", done));
  process.kill(id, "SIGKILL");
  const late = new Promise((done) => setTimeout(() => done("late"), 20_000));
  if ((await Promise.race([gone, late])) === "late") {
    throw new Error(`process ${id} was killed, and it was not the tab's`);
  }
  tab.close().catch(() => undefined);
}

/**
 * Kills tabs of Chromium.
 *
 * @param steps - of the run.
 * @returns `{ adapter, seed, kills: [{ after, step, resumed, wrong }], halfWritten }`.
 */
export async function killTabs({ count, seed = Date.now() % 1e6, steps = STEPS }) {
  const random = numbers(seed);
  const kills = [];
  let adapter;
  let halfWritten = 0;
  await withPage(
    "chromium",
    () => {},
    async (first, url) => {
      adapter = await first.evaluate(async () => {
        const { vendor, architecture } = (await navigator.gpu.requestAdapter()).info;
        return { vendor, architecture };
      });
      await first.goto("about:blank"); // a process of another site
      const reference = await undisturbed(first.browser(), url, steps);
      let last = 0;
      while (kills.length < count || last > 0) {
        const killing = kills.length < count;
        const before = await renderers(first.browser());
        const tab = await watched(first.browser(), url, steps);
        const began = await tab.opened;
        const wrong = judge(began, last, tab.losses, reference);
        if (began.half > 0) halfWritten += 1;
        if (kills.length > 0 && kills.at(-1).resumed === undefined) {
          Object.assign(kills.at(-1), { resumed: began.step, wrong });
        }
        const after = Math.floor(random() * LONGEST);
        const timer = killing
          ? new Promise((done) => setTimeout(() => done("kill"), after))
          : tab.ended;
        const how = await Promise.race([timer, tab.ended]);
        if (how === "kill") {
          await kill(tab.page, before);
          last = tab.losses.size > 0 ? Math.max(...tab.losses.keys()) : began.step;
          kills.push({ after, step: last });
        } else {
          await tab.page.close();
          last = 0;
        }
        const different = differing(tab.losses, reference);
        if (different && kills.length > 0) kills.at(-1).wrong ??= different;
      }
    },
  );
  return { adapter, seed, kills, halfWritten };
}

/** What is wrong with where a tab goes on, if anything. */
function judge({ step, problems }, last) {
  // A tab may end between the last file of a checkpoint and the manifest that makes it whole.
  const damaged = problems.filter((problem) => !problem.includes("manifest.json"));
  if (damaged.length > 0) return `damaged checkpoints: ${damaged.join("; ")}`;
  // Each step that was told of had been saved.
  return step < last ? `it goes on from step ${step}, and step ${last} had been saved` : undefined;
}

function differing(losses, reference) {
  for (const [step, loss] of losses) {
    if (loss !== reference.get(step)) {
      return `the loss of step ${step} is ${loss}, undisturbed it is ${reference.get(step)}`;
    }
  }
  return undefined;
}

/** The losses of the run when nothing happens to it. */
async function undisturbed(browser, url, steps) {
  const tab = await watched(browser, url, steps);
  await tab.ended;
  await tab.page.close();
  return tab.losses;
}

/** A tab that trains, and what it tells. */
async function watched(browser, url, steps) {
  const page = await openPage(browser, `${url}/blank.html`);
  const losses = new Map();
  let [opened, ended, failed] = [];
  const whenOpened = new Promise((done, fail) => {
    [opened, failed] = [done, fail];
  });
  const whenEnded = new Promise((done) => {
    ended = done;
  });
  await page.exposeFunction("tell", (told) => {
    if (told.opened) opened(told.opened);
    if (told.step) losses.set(told.step, told.loss);
    if (told.ended) ended("ended");
  });
  page.evaluate(train, url, steps).catch((error) => failed(error)); // its process may be killed
  return { page, losses, opened: whenOpened, ended: whenEnded };
}

/** 50 of them; the result as JSON and a line. */
export async function storage({ count = COUNT, seed } = {}) {
  const { adapter, ...result } = await killTabs({ count, seed });
  const whole = result.kills.filter(({ wrong }) => wrong === undefined).length;
  keep("storage", "chromium", adapter, { count, whole, ...result }, { short: count < COUNT });
  console.log(
    `storage: seed ${result.seed}: ${whole} of ${count} killed tabs went on from a whole checkpoint to the same ` +
      `losses; ${result.halfWritten} kills left a half-written one`,
  );
  for (const { wrong } of result.kills) if (wrong) console.log(`  ${wrong}`);
  return whole === count;
}
