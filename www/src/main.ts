/** The page: its buttons, and what its panels show of the run that they control. */
import * as checkpoint from "./checkpoint.ts";
import { byId, bytes, download } from "./dom.ts";
import { type Lab, openLab } from "./lab.ts";
import { AskPanel } from "./panels/ask.ts";
import { LearningPanel } from "./panels/learning.ts";
import { showCapabilities, showPlan } from "./panels/machine.ts";
import { SamplesPanel } from "./panels/samples.ts";
import { SetupPanel } from "./panels/setup.ts";
import { clearError, say, showError } from "./panels/status.ts";
import { presetFor } from "./presets.ts";
import { resolveSettings } from "./settings.ts";
import { readText } from "./text.ts";
import { Training, type TrainingEvent } from "./training.ts";

type State = "idle" | "loading" | "training" | "paused" | "stopped" | "error";

const start = byId("start", HTMLButtonElement);
const pause = byId("pause", HTMLButtonElement);
const stop = byId("stop", HTMLButtonElement);
const save = byId("save", HTMLButtonElement);
const load = byId("load", HTMLButtonElement);
const setup = new SetupPanel();
const learning = new LearningPanel();
const samples = new SamplesPanel();
const ask = new AskPanel();

/** Without a GPU nothing can be started. */
let lab: Lab | undefined;
let training: Training | undefined;
/** What ends the training before its last step. */
let halting: "paused" | "stopped" | undefined;

const state = (): State => document.body.dataset["state"] as State;

function setState(next: State): void {
  document.body.dataset["state"] = next;
  const busy = next === "training" || next === "loading";
  setup.disabled = busy || next === "paused";
  start.disabled = !lab || busy;
  start.textContent = next === "paused" ? "Resume" : "Start";
  pause.disabled = next !== "training" && next !== "paused";
  pause.setAttribute("aria-pressed", String(next === "paused"));
  stop.disabled = next !== "training" && next !== "paused";
  load.disabled = !lab || busy;
  save.disabled = training === undefined || next === "loading";
  ask.disabled = training === undefined || next === "loading";
}

/** Shows a failure that ends the run, or the setting up of one. */
function fail(error: unknown): void {
  showError(error);
  setState("error");
  say(lab ? "That did not work." : "No GPU to train on.");
}

function show(event: TrainingEvent): void {
  learning.show(event);
  if (event.type === "sample") samples.add(event.step, event.pieces);
  if (event.type === "step" && event.skipped) {
    say(`Step ${event.step} was skipped: its loss or gradient was not finite.`);
  }
}

/** Frees the run that the page has. */
async function drop(): Promise<void> {
  const before = training;
  training = undefined;
  await before?.free();
}

/** Makes a run the page's, and frees the one before. */
async function take(made: Training): Promise<void> {
  await drop();
  training = made;
  learning.start(made);
  samples.clear();
  ask.start(made);
  showPlan(await made.plan());
  say(
    `${made.model.parameterCount.toLocaleString("en")} weights, ${bytes(made.model.gpuBytes)} on the GPU, ` +
      `${made.trainBytes.toLocaleString("en")} bytes of text.`,
  );
}

async function train(): Promise<void> {
  if (!training) return;
  halting = undefined;
  clearError();
  setState("training");
  say("Training.");
  for await (const event of training.run()) {
    show(event);
    if (halting) break;
  }
  if (state() === "error") return;
  const { finished, step } = training;
  const paused = !finished && halting === "paused";
  setState(paused ? "paused" : "stopped");
  if (finished) say("Done. Ask it for more below.");
  else say(`${paused ? "Paused" : "Stopped"} after step ${step}.`);
}

async function begin(): Promise<void> {
  clearError();
  const text = setup.text();
  if (typeof text === "string") return say(text);
  setState("loading");
  say("Compiling the model for this GPU…");
  const settings = resolveSettings(setup.choices(), lab!.runtime.capabilities);
  const content = readText(text, settings!);
  await drop();
  await take(await Training.create(lab!, settings!, content));
  await train();
}

function halt(how: "paused" | "stopped"): void {
  halting = how;
  if (state() === "paused" && how === "stopped") {
    setState("stopped");
    say(`Stopped after step ${training?.step}.`);
  } else say(how === "paused" ? "Pausing after this step…" : "Stopping after this step…");
}

async function loadCheckpoint(archive: File): Promise<void> {
  clearError();
  const text = setup.text();
  if (typeof text === "string") return say(text);
  setState("loading");
  say("Loading the checkpoint…");
  const { settings, files } = await checkpoint.open(archive);
  await take(await Training.resume(lab!, settings, readText(text, settings), files));
  setup.show(settings);
  setState("paused");
  say(`Loaded at step ${training!.step} of ${settings.steps}: resume, or ask it for text.`);
}

setup.element.addEventListener("submit", (event) => {
  event.preventDefault();
  (state() === "paused" ? train() : begin()).catch(fail);
});
pause.addEventListener("click", () => {
  if (state() === "paused") train().catch(fail);
  else halt("paused");
});
stop.addEventListener("click", () => halt("stopped"));
save.addEventListener("click", () => {
  const { step } = training!;
  checkpoint
    .save(training!)
    .then((archive) => download(archive, `tinyloom-step-${step}.tar`))
    .catch(showError);
});
const file = byId("checkpoint", HTMLInputElement);
load.addEventListener("click", () => {
  file.disabled = false;
  file.click();
});
file.addEventListener("change", () => {
  const archive = file.files?.[0];
  file.value = "";
  if (archive) loadCheckpoint(archive).catch(fail);
});

async function open(): Promise<void> {
  setState("loading");
  const opened = await openLab();
  const { capabilities, lost } = opened.runtime;
  lab = opened;
  void lost.then(({ message }) => {
    lab = undefined;
    fail(new opened.TinyloomError("device-lost", `${message}; reload the page to go on`));
  });
  setup.size = presetFor(capabilities);
  showCapabilities(capabilities);
  setState("idle");
  say(
    capabilities.software
      ? "This adapter computes on the CPU: the pocket model fits it, about two minutes."
      : "Ready.",
  );
}

open().catch(fail);
