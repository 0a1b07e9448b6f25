import * as Comlink from "comlink";
import { storyPrompt } from "../stories/preset.ts";
import { LossChart } from "./chart.ts";
import { byId, bytes, clock, showNumber } from "./dom.ts";
import { SetupForm } from "./form.ts";
import { isFailure, type Prepared, type StudioEvent } from "./protocol.ts";
import { Samples } from "./samples.ts";
import type { Studio } from "./studio.ts";
import { showCapabilities, showPlan } from "./tables.ts";

type State = "idle" | "loading" | "training" | "paused" | "stopped" | "error";

const start = byId("start", HTMLButtonElement);
const pause = byId("pause", HTMLButtonElement);
const stop = byId("stop", HTMLButtonElement);
const save = byId("save", HTMLButtonElement);
const load = byId("load", HTMLButtonElement);
const generate = byId("generate", HTMLButtonElement);
const prompt = byId("prompt", HTMLTextAreaElement);
const output = byId("output", HTMLElement);
const form = new SetupForm();
const chart = new LossChart(byId("loss-chart", HTMLElement));
const samples = new Samples();

/** The GPU is open. Without one nothing can be started. */
let ready = false;
let run: Prepared | undefined;
/** What ended the training before its last step. */
let halting: "paused" | "stopped" | undefined;
let generating = false;
let smoothedSpeed = 0;

const worker = new Worker(new URL("./worker.ts", import.meta.url), { type: "module" });
worker.addEventListener("error", (event) => {
  fail({
    code: "internal",
    message: `the training worker failed: ${event.message || "it could not be loaded"}`,
  });
});
const studio = Comlink.wrap<Studio>(worker);

function setState(state: State): void {
  document.body.dataset["state"] = state;
  const busy = state === "training" || state === "loading";
  form.disabled = busy || state === "paused";
  start.disabled = !ready || busy;
  start.textContent = state === "paused" ? "Resume" : "Start";
  pause.disabled = state !== "training" && state !== "paused";
  pause.setAttribute("aria-pressed", String(state === "paused"));
  stop.disabled = state !== "training" && state !== "paused";
  load.disabled = !ready || busy;
  save.disabled = run === undefined || state === "loading";
  generate.disabled = run === undefined || state === "loading";
}

function say(text: string): void {
  byId("status", HTMLElement).textContent = text;
}

const advice: Record<string, string> = {
  "webgpu-unavailable":
    "This browser has no WebGPU here. It is in current Chrome, Edge, Safari and Firefox, on a page from https or localhost.",
  "adapter-unavailable":
    "The browser has WebGPU but found no GPU to use. Its settings or graphics driver may have it switched off.",
};

/** Shows a failure. One of training, or of setting it up, ends the run; any other leaves the page as it is. */
function fail(error: unknown, endsRun = true): void {
  const { code, message } = isFailure(error) ? error : { code: "internal", message: String(error) };
  const box = byId("error", HTMLElement);
  box.dataset["code"] = code;
  box.textContent = advice[code] ? `${advice[code]} (${message})` : `${message} (${code})`;
  box.hidden = false;
  if (!endsRun) return;
  setState("error");
  say(ready ? "That did not work." : "No GPU to train on.");
}

function clearError(): void {
  const box = byId("error", HTMLElement);
  box.hidden = true;
  box.textContent = "";
}

function showProgress(step: number, steps: number): void {
  const percent = (100 * step) / steps;
  byId("weave", HTMLElement).setAttribute("aria-valuenow", percent.toFixed(0));
  byId("weft", SVGRectElement).setAttribute("width", `${percent}%`);
  showNumber("step", step, `${step.toLocaleString("en")} of ${steps.toLocaleString("en")}`);
}

function onEvent(event: StudioEvent): void {
  if (event.type === "lost") {
    ready = false;
    fail({ code: "device-lost", message: `${event.message}; reload the page to go on` });
    return;
  }
  if (!run) return;
  const { steps, tokensPerStep } = run.settings;
  if (event.type === "sample") {
    samples.add(event.step, event.pieces);
  } else if (event.type === "validation") {
    showNumber("validation-loss", event.loss, event.loss.toFixed(3));
    chart.addValidation(event.step, event.loss);
  } else {
    smoothedSpeed = event.tokensPerSecond;
    run.step = event.step;
    showProgress(event.step, steps);
    showNumber("loss", event.loss, event.loss.toFixed(3));
    showNumber(
      "tokens-per-second",
      event.tokensPerSecond,
      Math.round(event.tokensPerSecond).toLocaleString("en"),
    );
    const left = ((steps - event.step) * tokensPerStep) / smoothedSpeed;
    byId("time-left", HTMLElement).textContent = clock(left);
    chart.addLoss(event.step, event.loss);
    if (event.skipped) say(`Step ${event.step} was skipped: its loss or gradient was not finite.`);
  }
}

function showRun(prepared: Prepared): void {
  run = prepared;
  const { settings, step, plan, parameterCount, gpuBytes, trainBytes, entropy } = prepared;
  chart.reset(settings.steps, entropy);
  byId("entropy-key", HTMLElement).hidden = entropy === undefined;
  samples.clear();
  output.textContent = "";
  showProgress(step, settings.steps);
  for (const id of ["loss", "validation-loss", "tokens-per-second"]) showNumber(id, undefined);
  byId("time-left", HTMLElement).textContent = "–";
  showPlan(byId("plan", HTMLTableElement), plan);
  byId("plan-note", HTMLElement).textContent =
    `${plan.length} dispatches, in one submit to the GPU; equal ones are shown together.`;
  say(
    `${parameterCount.toLocaleString("en")} weights, ${bytes(gpuBytes)} on the GPU, ` +
      `${trainBytes.toLocaleString("en")} bytes of text.`,
  );
}

async function train(): Promise<void> {
  if (!run) return;
  halting = undefined;
  clearError();
  setState("training");
  say("Training.");
  const { finished, step } = await studio.train();
  if (document.body.dataset["state"] === "error") return;
  const paused = !finished && halting === "paused";
  setState(paused ? "paused" : "stopped");
  if (finished) say("Done. Ask it for more below.");
  else say(`${paused ? "Paused" : "Stopped"} after step ${step}.`);
}

/** Runs an action of the page and shows what goes wrong in it. */
function attempt(action: () => Promise<void>, endsRun = true): void {
  action().catch((error: unknown) => fail(error, endsRun));
}

async function begin(): Promise<void> {
  clearError();
  const text = form.text();
  if (typeof text === "string") return say(text);
  setState("loading");
  say("Compiling the model for this GPU…");
  showRun(await studio.start(form.options(text)));
  if (prompt.value.trim() === "" && text.kind === "stories")
    prompt.value = storyPrompt.split(" ", 4).join(" ");
  await train();
}

function halt(how: "paused" | "stopped"): void {
  halting = how;
  if (document.body.dataset["state"] === "paused" && how === "stopped") {
    setState("stopped");
    say(`Stopped after step ${run?.step}.`);
    return;
  }
  say(how === "paused" ? "Pausing after this step…" : "Stopping after this step…");
  attempt(() => studio.halt());
}

form.element.addEventListener("submit", (event) => {
  event.preventDefault();
  attempt(document.body.dataset["state"] === "paused" ? train : begin);
});
pause.addEventListener("click", () => {
  if (document.body.dataset["state"] === "paused") attempt(train);
  else halt("paused");
});
stop.addEventListener("click", () => halt("stopped"));

async function write(): Promise<void> {
  generating = true;
  generate.textContent = "Stop writing";
  output.setAttribute("aria-busy", "true");
  const written = document.createElement("span");
  output.replaceChildren(
    Object.assign(document.createElement("b"), { textContent: prompt.value }),
    written,
  );
  const request = {
    prompt: prompt.value,
    maxTokens: byId("max-tokens", HTMLInputElement).valueAsNumber,
    temperature: byId("temperature", HTMLInputElement).valueAsNumber,
    seed: Math.floor(Math.random() * 2 ** 32),
  };
  try {
    await studio.generate(
      request,
      Comlink.proxy((text: string) => written.append(text)),
    );
  } finally {
    generating = false;
    generate.textContent = "Generate";
    output.setAttribute("aria-busy", "false");
  }
}

byId("ask", HTMLFormElement).addEventListener("submit", (event) => {
  event.preventDefault();
  attempt(generating ? () => studio.cancelGenerate() : write, false);
});

save.addEventListener("click", () =>
  attempt(async () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await studio.save());
    link.download = `tinyloom-step-${run?.step ?? 0}.tar`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  }, false),
);

const checkpoint = byId("checkpoint", HTMLInputElement);
load.addEventListener("click", () => {
  checkpoint.disabled = false;
  checkpoint.click();
});
checkpoint.addEventListener("change", () =>
  attempt(async () => {
    const file = checkpoint.files?.[0];
    checkpoint.value = "";
    const text = form.text();
    if (!file) return;
    if (typeof text === "string") return say(text);
    clearError();
    setState("loading");
    say("Loading the checkpoint…");
    showRun(await studio.load(file, text));
    form.show(run!.settings);
    setState("paused");
    say(`Loaded at step ${run!.step} of ${run!.settings.steps}: resume, or ask it for text.`);
  }),
);

async function open(): Promise<void> {
  setState("loading");
  const { capabilities, preset } = await studio.open(Comlink.proxy(onEvent));
  ready = true;
  form.size = preset;
  showCapabilities(byId("capabilities", HTMLTableElement), capabilities);
  setState("idle");
  say(
    capabilities.software
      ? "This adapter computes on the CPU: the pocket model fits it, about two minutes."
      : "Ready.",
  );
}

attempt(open);
