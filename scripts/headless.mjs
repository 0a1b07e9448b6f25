// The main job without a window: trains in a headless browser, or in Node with Dawn, and prints a
// sample. Progress goes to stderr; stdout has the sample and, with --json, one object on its last line.
import { fork } from "node:child_process";
import { totalmem } from "node:os";
import { join } from "node:path";
import { Failure, root, step } from "./lib.mjs";
import { dawnEnv } from "./machine.mjs";
import { ProgressBar } from "./progress.mjs";

const INPUT = "/input.txt";

/** Runs the command that `parseCommand` made of the command line. */
export async function headless({ browser, json, text, job }) {
  const bar = new ProgressBar();
  const options = { ...job, memory: machineMemory() };
  step(`training in ${browser === "node" ? "Node with Dawn" : `headless ${browser}`}`);
  const run = browser === "node" ? inNode : inBrowser;
  let result;
  try {
    result = await run(browser, options, text, (progress) => bar.update(progress));
  } finally {
    bar.end();
  }
  console.error(`\n${summary(result)}\n`);
  if (!json) return console.log(result.sample);
  console.error(`${result.sample}\n`);
  console.log(JSON.stringify(result));
}

/** Bytes that this process, and what it starts, may use. */
function machineMemory() {
  return Math.min(totalmem(), process.constrainedMemory?.() || Number.POSITIVE_INFINITY);
}

/** A failure of the job, with the command line's names for its options. */
function jobFailure(message) {
  const flag = (name) => `--${name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
  return new Failure(message.replace(/\b(sequenceLength|tokensPerStep|learningRate)\b/g, flag));
}

/** The result in words. */
function summary(result) {
  const nats = (loss) => (Number.isFinite(loss) ? loss.toFixed(3) : String(loss));
  const percent = (share) => `${Math.round(100 * share)} %`;
  const lines = [
    `adapter     ${result.adapter}`,
    `loss        ${nats(result.firstLoss)} → ${nats(result.finalLoss)} nats per byte in ${result.steps} steps`,
    `validation  ${nats(result.validationLoss)} nats per byte`,
    `speed       ${Math.round(result.tokensPerSecond)} tokens/s training, ` +
      `${Math.round(result.decodeTokensPerSecond)} tokens/s decoding`,
  ];
  if (result.entropy)
    lines.push(`entropy     ${nats(result.entropy.natsPerByte)} nats per byte: the grammar's own`);
  if (result.sampledSentences) {
    lines.push(
      `sentences   of ${result.sampledSentences} sampled, ${percent(result.grammaticalShare)} follow the grammar, ` +
        `${percent(result.novelShare)} follow it and are not in the training text; ` +
        `the first ${result.shownSentences} are shown`,
    );
  }
  return lines.join("\n");
}

/** The work's outcome, or on Ctrl-C a failure at once, so that the caller can close what it opened. */
async function interruptible(work) {
  let handler;
  const interrupted = new Promise((_, fail) => {
    handler = () => fail(new Failure("interrupted", 130));
    process.once("SIGINT", handler);
    process.once("SIGTERM", handler);
  });
  work.catch(() => {}); // after an interruption it fails too, when its browser closes
  try {
    return await Promise.race([work, interrupted]);
  } finally {
    process.off("SIGINT", handler);
    process.off("SIGTERM", handler);
  }
}

async function inBrowser(kind, options, text, onProgress) {
  const { launch, openPage } = await import("./browser.mjs");
  const { serve } = await import("./server.mjs");
  const mounts = { "/": join(root, "www", "dist") };
  if (text) mounts[INPUT] = text;
  const browser = await launch(kind, { ends: false });
  const server = await serve(mounts);
  try {
    const errors = [];
    const page = await openPage(browser, `${server.url}/headless.html`, (type, message) => {
      if (type === "error") errors.push(message);
    });
    await page.exposeFunction("tinyloomProgress", onProgress);
    const input = text ? server.url + INPUT : undefined;
    const outcome = await interruptible(page.evaluate(callJob, options, input));
    if (outcome.result) return outcome.result;
    throw jobFailure([outcome.failure, ...errors].join("\n"));
  } finally {
    await browser.close().catch(() => {});
    await server.close();
  }
}

/** Runs in the page. A failure comes back as text, since errors lose their code on the way. */
async function callJob(options, textUrl) {
  try {
    if (typeof window.tinyloomHeadless !== "function") {
      throw new Error("headless.html did not define tinyloomHeadless");
    }
    const text = textUrl && (await (await fetch(textUrl)).blob());
    const onProgress = (progress) => void window.tinyloomProgress(progress);
    return { result: await window.tinyloomHeadless({ ...options, text }, onProgress) };
  } catch (error) {
    return { failure: error?.code ? `${error.message} (${error.code})` : String(error) };
  }
}

async function inNode(_kind, options, text, onProgress) {
  const child = fork(join(root, "scripts", "node-job.mjs"), {
    env: { ...process.env, ...dawnEnv() }, // Vulkan's loader reads it when Dawn starts
    serialization: "advanced",
    stdio: ["ignore", process.stderr, process.stderr, "ipc"],
  });
  const outcome = new Promise((done, fail) => {
    child.on("message", ({ progress, result, failure }) => {
      if (progress) onProgress(progress);
      if (result) done(result);
      if (failure) fail(jobFailure(failure));
    });
    child.on("error", fail);
    child.on("exit", (code, signal) =>
      fail(new Failure(`Node with Dawn ended early (${signal ?? `exit code ${code}`})`)),
    );
    child.send({ options, text });
  });
  try {
    return await interruptible(outcome);
  } finally {
    child.kill();
  }
}
