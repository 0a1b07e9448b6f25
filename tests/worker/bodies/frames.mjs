// In a page: what the main thread does while a worker trains, with a chart and a text field in use.
import { config, dataset, pause, trainerOptions } from "../../api/bodies/kit.mjs";

/** Milliseconds for which the page is blocked on purpose. */
const BLOCKED = 150;

/** Longest task and longest gap between frames, in milliseconds, until `end`. */
function watch() {
  const seen = { task: 0, gap: 0, frames: 0, measuresTasks: false };
  if (PerformanceObserver.supportedEntryTypes.includes("longtask")) {
    seen.measuresTasks = true;
    new PerformanceObserver((list) => {
      for (const { duration } of list.getEntries()) seen.task = Math.max(seen.task, duration);
    }).observe({ type: "longtask" });
  }
  let last = performance.now();
  const frame = (now) => {
    seen.gap = Math.max(seen.gap, now - last);
    seen.frames += 1;
    last = now;
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
  return seen;
}

/** Milliseconds between two ticks, and from which a gap is noted. */
const [TICK, NOTED] = [4, 20];

const begun = ({ startTime }) => performance.timeOrigin + startTime;

/** Ticks without end, and notes the gaps as pairs of times. It runs in a page and, as text, in a worker. */
function ticking(tick, noted) {
  const now = () => performance.timeOrigin + performance.now();
  const gaps = [];
  let last = now();
  const next = () => {
    const at = now();
    if (at - last > noted) gaps.push([last + tick, at]);
    last = at;
    setTimeout(next, tick);
  };
  next();
  return gaps;
}

/**
 * The longest time for which the page's thread kept its timers waiting. A thread of a worker that does nothing
 * else is the witness: where it waits too, the machine is busy and not the page.
 *
 * @returns what gives the longest since the last time it was asked, `{ held, machine, when }`:
 *   without what the witness waited, and with it, and the mark before it.
 */
async function watchTimers() {
  const source = `const gaps = (${ticking})(${TICK}, ${NOTED});
    onmessage = () => postMessage(gaps.splice(0));`;
  const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
  const witness = new Worker(url);
  const gaps = ticking(TICK, NOTED);
  const ask = async () => {
    await pause(3 * NOTED); // a gap is noted when it is over
    const answer = new Promise((done) => {
      witness.onmessage = ({ data }) => done(data);
    });
    witness.postMessage(0);
    const busy = await answer;
    const both = (from, to) =>
      busy.reduce((sum, [a, b]) => sum + Math.max(0, Math.min(b, to) - Math.max(a, from)), 0);
    const longest = { held: 0, machine: 0, when: "" };
    for (const [from, to] of gaps.splice(0)) {
      const held = to - from - both(from, to);
      if (held > longest.held) {
        const mark = performance.getEntriesByType("mark").findLast((one) => begun(one) < to);
        Object.assign(longest, { held, when: mark?.name ?? "" });
      }
      longest.machine = Math.max(longest.machine, to - from);
    }
    return longest;
  };
  await ask(); // what the witness's own start held up does not count
  return ask;
}

/** Draws the losses so far. */
function draw(canvas, losses) {
  const context = canvas.getContext("2d");
  context.clearRect(0, 0, canvas.width, canvas.height);
  context.beginPath();
  for (const [index, loss] of losses.entries()) {
    context.lineTo((index / 200) * canvas.width, canvas.height * (1 - loss / 6));
  }
  context.stroke();
}

/** Trains so many steps through a worker, from `connect()` on, and gives what was seen meanwhile. */
export async function trainWithFrames(connect, steps) {
  document.body.innerHTML = '<canvas width="600" height="200"></canvas><input id="field">';
  const canvas = document.querySelector("canvas");
  document.querySelector("#field").focus();
  const seen = watch();
  const delays = await watchTimers();
  performance.mark("connect");
  const { Runtime, Model, Trainer, Dataset, ByteTokenizer, close } = await connect();
  performance.mark("create");
  const runtime = await Runtime.create();
  const model = await Model.create(runtime, config, { seed: 42 });
  const trainer = await Trainer.create(model, { ...trainerOptions, totalSteps: steps });
  const data = await dataset({ Dataset, ByteTokenizer });
  performance.mark("train");
  const losses = [];
  for await (const { loss } of trainer.run(data, { steps })) {
    losses.push(loss);
    draw(canvas, losses);
  }
  await close();
  const typed = document.querySelector("#field").value;
  const result = { ...seen, ...(await delays()), steps: losses.length, typed: typed.length };
  // The watch is worth something only if it sees this.
  const until = performance.now() + BLOCKED;
  while (performance.now() < until);
  return { ...result, noticed: (await delays()).held };
}

/** Trains in the page and in a worker without end, and counts the steps of each. */
export async function trainHidden(tinyloom, connect) {
  globalThis.steps = { page: 0, worker: 0 };
  const run = async (api, name) => {
    const runtime = await api.Runtime.create();
    const model = await api.Model.create(runtime, config);
    const trainer = await api.Trainer.create(model, trainerOptions);
    for await (const { step } of trainer.run(await dataset(api), { steps: 100_000 })) {
      globalThis.steps[name] = step;
    }
  };
  const fail = (error) => {
    globalThis.steps.failed = String(error?.stack ?? error);
  };
  run(tinyloom, "page").catch(fail);
  run(await connect(), "worker").catch(fail);
}
