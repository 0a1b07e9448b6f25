// In a page: what the main thread does while a worker trains, with a chart and a text field in use.
import { config, dataset, trainerOptions } from "./kit.mjs";

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
  const { Runtime, Model, Trainer, Dataset, ByteTokenizer, close } = await connect();
  const runtime = await Runtime.create();
  const model = await Model.create(runtime, config, { seed: 42 });
  const trainer = await Trainer.create(model, { ...trainerOptions, totalSteps: steps });
  const data = await dataset({ Dataset, ByteTokenizer });
  const losses = [];
  for await (const { loss } of trainer.run(data, { steps })) {
    losses.push(loss);
    draw(canvas, losses);
  }
  await close();
  const typed = document.querySelector("#field").value;
  return { ...seen, steps: losses.length, typed: typed.length };
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
