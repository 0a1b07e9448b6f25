/** What the page does: it has one run at a time, and says in `data-state` of the body what becomes of it. */
import { download, whole } from "./dom.ts";
import type { Score } from "./exam.ts";
import { type Folder, importModel, importRun, kindOf } from "./import.ts";
import { type Lab, openLab } from "./lab.ts";
import { applyLink } from "./link.ts";
import { showChip } from "./loom/chips.ts";
import { Stage } from "./loom/stage.ts";
import { beginRun, openRun } from "./open.ts";
import { AskPanel } from "./panels/ask.ts";
import { BenchmarkPanel } from "./panels/benchmark.ts";
import { busy, type State, showState, state } from "./panels/buttons.ts";
import { InsidePanel } from "./panels/inside.ts";
import { KernelsPanel } from "./panels/kernels.ts";
import { LearningPanel } from "./panels/learning.ts";
import { showCapabilities, showModel, showPlan, showSpeed } from "./panels/machine.ts";
import { ProofsPanel } from "./panels/proofs.ts";
import { RunsPanel } from "./panels/runs.ts";
import { SamplesPanel } from "./panels/samples.ts";
import { SetupPanel } from "./panels/setup.ts";
import { clearError, say, showError } from "./panels/status.ts";
import { failureOf, presetFor } from "./presets.ts";
import { remember, remembered } from "./remember.ts";
import { isInUse, RunStore } from "./run-store.ts";
import { type RunSettings, resolveSettings } from "./settings.ts";
import { shapeOf } from "./shape.ts";
import { tasks } from "./tasks/index.ts";
import { readText, type Text } from "./text.ts";
import type { Training, TrainingEvent } from "./training.ts";
import { LazyTunePanel } from "./tune/lazy-panel.ts";

/** What the page has once the GPU is open. */
interface Open {
  lab: Lab;
  store: RunStore;
}

export const setup = new SetupPanel();
const learning = new LearningPanel();
const samples = new SamplesPanel();
const ask = new AskPanel();
const inside = new InsidePanel();
const kernels = new KernelsPanel();
const proofs = new ProofsPanel();
const benchmark = new BenchmarkPanel();
const stage = new Stage();

/** Without a GPU nothing can be started. */
let opened: Open | undefined;
/** Whether there was a GPU at all. */
let everOpened = false;
/** What a GPU that is lost for good leaves behind: its runs can be exported. */
let left: RunStore | undefined;
export let training: Training | undefined;
/** What ends the training before its last step. */
let halting: "paused" | "stopped" | undefined;
/** The run that the page begins by itself, which ends when its task is solved. */
let opening: Training | undefined;
/** What the visitor wants to be learned as soon as the form is free. */
let wanted: string | undefined;
/** How often the page tries to open the run that it was at. Each try waits a second for the run's lock. */
const TRIES = 5;
/** The share of unseen problems that counts as solved. */
const SOLVED = 0.98;
/** Of a run that storage has no place for. */
const IN_MEMORY = "The run ends with the page: export it to keep it.";

const tune = new LazyTunePanel({
  opened: () => opened,
  lost: () => everOpened && !opened,
  training: () => training,
  busy,
});

const runs = new RunsPanel({
  resume: (name) => attempt(() => resume(name), fail),
  export: (name) => attempt(async () => download(await store()!.export(name), `${name}.zip`)),
  rename: (name, to) => attempt(() => change((store) => store.rename(name, to))),
  delete: (name) => {
    if (!confirm(`Delete the run “${name}” with its model and its text?`)) return;
    attempt(async () => {
      if (training?.run.name === name) await leave();
      await change((store) => store.delete(name));
    });
  },
  compare: (names) => attempt(() => compare(names)),
});

/** The runs that are kept; undefined before there was a GPU. */
const store = (): RunStore | undefined => opened?.store ?? left;

function setState(next: State): void {
  showState(next, { gpu: opened !== undefined, run: training !== undefined });
  setup.disabled = busy() || next === "paused";
  if (!busy()) {
    learning.end();
    if (next === "stopped") stage.end();
    inside.refresh();
  }
  proofs.training = busy();
  benchmark.busy = busy() || !opened;
  ask.disabled = training === undefined || next === "loading" || !opened;
  if (next !== "loading") attempt(showRuns);
  else tune.changed();
  attempt(async () => void (await judged()));
  if (wanted !== undefined && !setup.disabled) {
    const source = wanted;
    wanted = undefined;
    // What has called this has something to say first.
    setTimeout(() => teach(source));
  }
}

/** Does something, and shows what goes wrong in it. */
export function attempt(
  work: () => Promise<void>,
  failed: (error: unknown) => void = showError,
): void {
  work().catch(failed);
}

/** Shows a failure that ends the run, or the setting up of one. */
export function fail(error: unknown): void {
  showError(error);
  if (training) remember({ id: training.run.id, training: !opened });
  if (!everOpened) withoutGpu();
  setState("error");
  stage.say(opened ? "That did not work; below it says why." : "");
  const stands = training?.stored ? ` The run stands at step ${whole(training.stored.step)}.` : "";
  const kept = training?.inMemory && training !== opening ? ` ${IN_MEMORY}` : "";
  say(opened ? "That did not work." : `No GPU to train on.${stands}${kept}`);
}

/** Without a GPU the stage plays a recorded run, and the page has no control that does nothing. */
function withoutGpu(): void {
  document.body.dataset["gpu"] = "none";
  stage.withoutGpu();
  void stage.playRecording();
}

async function showRuns(): Promise<void> {
  const kept = store();
  // Of a run whose GPU is gone only what is stored is left.
  const current = training && { id: training.run.id, step: opened ? training.step : 0 };
  if (kept) await runs.show(kept, current, { busy: busy(), resumable: Boolean(opened) });
  tune.changed();
}

/** Changes the list of runs. */
async function change(work: (store: RunStore) => Promise<void>): Promise<void> {
  clearError();
  await work(store()!).finally(showRuns);
  await compare(runs.compared());
}

async function compare(names: readonly string[]): Promise<void> {
  learning.compare(await Promise.all(names.map((name) => store()!.curve(name))));
}

function show(event: TrainingEvent): void {
  document.dispatchEvent(new CustomEvent("tinyloom:training", { detail: event }));
  learning.show(event);
  stage.show(event);
  if (event.type === "weights" && training) stage.add(training, event.step, event.file);
  if (event.type === "score" && training === opening && isSolved(event.score)) halt("stopped");
  if (event.type === "writing") samples.write(event.step, event.token);
  if (event.type === "sample") {
    samples.add(event.step, event.pieces, event.tokens);
    inside.sampled(event.tokens);
  }
  if (event.type === "stored" && training) {
    const { run, settings } = training;
    runs.stored(run.id, event.stored, settings.steps, event.validation);
  }
  if (event.type === "full") {
    say(
      "The storage is full. The run goes on in memory and ends with the page: stop it, then export it.",
    );
    attempt(showRuns);
  }
  if (event.type === "step") {
    if (training) runs.stepped(training.run.id, event.step);
    kernels.stepped();
    if (event.tokensPerSecond) showSpeed(event.tokensPerSecond);
    proofs.stepped();
  }
  if (event.type === "step" && event.skipped) {
    say(`Step ${whole(event.step)} was skipped: its loss or gradient was not finite.`);
  }
}

const isSolved = ({ right, of }: Score): boolean => right >= SOLVED * of;

/** Leaves the page's run, which stays in the list. */
async function leave(): Promise<void> {
  const before = training;
  training = undefined;
  remember(undefined);
  await before?.free();
}

/** Makes a run the page's, with what happened in it so far. */
async function take(made: Training): Promise<void> {
  training = made;
  showChip(made.task ?? (made.text.judge ? "stories" : setup.source));
  await stage.take(made);
  made.wants = (step) => stage.due(step);
  learning.start(made);
  samples.start(made.task && tasks[made.task]);
  ask.start(made);
  inside.start(made);
  kernels.start(made);
  proofs.start(opened!.lab, made);
  for await (const event of made.past()) show(event);
  for await (const event of made.weights()) show(event);
  showPlan(await made.plan());
  showModel(made);
}

export async function train(): Promise<void> {
  if (!training) return;
  const { run } = training;
  halting = undefined;
  clearError();
  if (training !== opening) remember({ id: run.id, training: true });
  setState("training");
  say(training.inMemory && training !== opening ? `Training. ${IN_MEMORY}` : "Training.");
  for await (const event of training.steps()) show(event);
  if (state() === "error") return;
  if (halting === "paused" && !training.finished) {
    remember({ id: training.run.id, training: false });
    setState("paused");
    say(`Paused after step ${whole(training.step)}.`);
  } else await end();
}

/** Ends a run, with a sample. */
async function end(): Promise<void> {
  const { step, finished } = training!;
  remember(undefined);
  for await (const event of training!.score()) show(event);
  for await (const event of training!.sample()) show(event);
  for await (const event of training!.keep()) show(event);
  setState("stopped");
  if (training === opening) return say(openingEnd(step));
  const kept = training!.inMemory ? ` ${IN_MEMORY}` : "";
  const done = failureOf(training!.settings) ?? "Ask it for more below.";
  say(`${finished ? `Done. ${done}` : `Stopped after step ${whole(step)}.`}${kept}`);
}

const openingEnd = (step: number): string =>
  `${learning.score} of the unseen problems are solved after ${whole(step)} steps. ` +
  "Ask it a word of your own, or choose what it learns next.";

/** Teaches a new model something of the form's, once the run before has ended; that one stays in the list. */
export function learn(source: string): void {
  if (source !== "paste") {
    showChip(source);
    stage.say("A new model is being set up. What is shown until then is the one before.");
  }
  if (state() === "training" || state() === "paused") {
    wanted = source;
    halt("stopped");
  } else if (setup.disabled) wanted = source;
  else teach(source);
}

function teach(source: string): void {
  // A text of the visitor's has to be pasted first.
  if (source === "paste") setup.ask();
  else {
    setup.choose(source);
    // The loom shows it, from where it was asked for.
    attempt(() => begin(false), fail);
  }
}

/** Whether leaving the page loses something: steps, or a whole run where there is no storage. */
export const leavingLoses = (): boolean =>
  tune.leavingLoses ||
  (training !== opening && (state() === "training" || Boolean(training?.inMemory)));

export function halt(how: "paused" | "stopped"): void {
  halting = how;
  if (state() === "paused") {
    setState("loading");
    attempt(end, fail);
    return;
  }
  say(how === "paused" ? "Pausing after this step…" : "Stopping after this step…");
  training?.halt();
}

/** Shows what a run of the form's settings takes; gives why it is refused. */
async function judged(): Promise<string | undefined> {
  return opened && !busy() ? setup.judge(opened.lab, settingsOf()) : undefined;
}

/** The visitor has changed the form. */
export function formChanged(): void {
  if (!training) learning.preview(setup.scores);
  attempt(async () => {
    const refused = await judged();
    // A field that keeps Start from starting has been named, or will be.
    if (state() !== "idle" || setup.element.querySelector(":invalid")) return;
    say(refused ? "This model cannot be trained: see above." : "Ready.");
  });
}

function settingsOf(choices = setup.choices()): RunSettings {
  return resolveSettings(choices, opened!.lab.runtime.capabilities)!;
}

/** The text chosen in the form, for a run of these settings. */
async function chosenText(settings: RunSettings): Promise<Text> {
  const text = setup.text();
  if (typeof text === "string") throw new opened!.lab.TinyloomError("invalid-options", text);
  return readText(text, settings);
}

/** Says what is being done, and leaves the run before. */
async function load(what: string): Promise<Open> {
  clearError();
  setState("loading");
  say(what);
  await leave();
  return opened!;
}

/**
 * Begins a run of the form's settings.
 *
 * @param reveal - whether its curve is brought into view.
 */
export async function begin(reveal = true): Promise<void> {
  const chosen = setup.text();
  if (typeof chosen === "string") return say(chosen);
  const [name, vocabulary] = [setup.name, setup.vocabulary];
  const settings = settingsOf();
  const before = state();
  setState("loading");
  const refused = await setup.judge(opened!.lab, settings);
  if (refused) {
    setState(before);
    return say(refused);
  }
  const last = training;
  const { lab, store } = await load("Compiling the model for this GPU…");
  const text = await readText(chosen, settings);
  const made = await beginRun(lab, store, { name, settings, text, vocabulary });
  await take(made);
  if (last && made.isLike(last)) await compare(runs.choose(last.run.id));
  if (reveal) learning.reveal();
  await train();
}

/** Begins a run by itself, so that a visitor sees a model learn at once. It ends with the page. */
async function beginOpening({ lab, store }: Open): Promise<void> {
  const choice = setup.text();
  if (typeof choice === "string") return;
  const settings = settingsOf();
  const text = await readText(choice, settings);
  opening = await beginRun(lab, store, { name: "Opening run", settings, text, lasting: false });
  await take(opening);
  if (wanted !== undefined) return setState("stopped");
  await train();
}

/** Goes on with a run of the list, at its newest checkpoint. */
async function resume(name: string, goOn = false): Promise<void> {
  const { lab, store } = await load(`Loading “${name}”…`);
  const made = await openRun(lab, store, name, chosenText);
  await take(made);
  setup.show(made.settings, made.text);
  if (goOn && !made.finished) return train();
  remember({ id: made.run.id, training: false });
  setState(made.finished ? "stopped" : "paused");
  const { step, settings } = made;
  const next = made.finished ? "ask it for text" : "resume, or ask it for text";
  say(`Loaded “${name}” at step ${whole(step)} of ${whole(settings.steps)}: ${next}.`);
}

/** Keeps what was dropped or picked as a run, and opens it. */
export async function bring(folder: Folder): Promise<void> {
  const kind = kindOf(folder);
  if (kind === "text") return setup.take(Object.values(folder.files)[0]);
  if (kind === "other")
    return say("That is neither a run, a model with its config.json, nor one text.");
  const { lab, store } = await load(`Importing ${folder.name}…`);
  if (kind === "run") return resume(await importRun(store, folder));
  const pretrained = await importModel(lab, folder);
  const { config } = pretrained.model;
  const choices = setup.choices();
  const longest = Math.min(choices.sequenceLength!, shapeOf(config).positions ?? 128);
  const settings = settingsOf({ ...choices, config, sequenceLength: longest });
  const text = await chosenText(settings);
  await take(await beginRun(lab, store, { name: folder.name, settings, text, pretrained }));
  for await (const event of training!.keep()) show(event);
  remember({ id: training!.run.id, training: false });
  setState("paused");
  say(`Loaded ${folder.name}: ask it for text, or resume to train it on ${text.name}.`);
}

/** Goes on with the run that this browser was at when the page ended. */
async function comeBack({ store }: Open): Promise<boolean> {
  const last = remembered();
  const run = last && (await store.list()).find(({ id }) => id === last.id);
  if (!last || !run) return false;
  // The page before this one may hold it for a moment; another tab may hold it for long.
  for (let tries = 0; tries < TRIES; tries++) {
    try {
      await resume(run.name, last.training);
      return true;
    } catch (error) {
      if (!isInUse(error)) throw error;
      remember(last);
    }
  }
  return false;
}

/** What became of a link's settings. */
function linked(unfit: readonly string[]): string {
  const left =
    unfit.length > 0 ? ` Left out, since the form does not take it: ${unfit.join(", ")}.` : "";
  return `The link's settings are in the form.${left} Start trains with them.`;
}

export async function open(): Promise<void> {
  setState("loading");
  const fresh = location.hash.length < 2 && !remembered();
  void stage.playRecording();
  if (fresh) {
    say("Getting ready. Your own model begins in a moment.");
  }
  const lab = await openLab((state) => proofs.recovery(state));
  const { capabilities, lost } = lab.runtime;
  opened = { lab, store: await RunStore.open(lab) };
  void lost.then(async ({ message }) => {
    left = opened?.store;
    opened = undefined;
    proofs.end();
    kernels.end();
    inside.end();
    const why = await rescue();
    fail(new lab.TinyloomError("device-lost", `${message}; reload the page to go on${why}`));
  });
  everOpened = true;
  setup.ofTexts = presetFor(capabilities);
  const unfit = applyLink(location.hash);
  showCapabilities(capabilities);
  // What is looked at costs a GPU next to nothing.
  if (!capabilities.software) inside.open();
  if (fresh) return beginOpening(opened);
  if (await comeBack(opened)) return;
  setState("idle");
  say(location.hash.length < 2 ? "Ready." : linked(unfit));
}

/** Keeps what the GPU leaves of the run; gives why that failed, if it did. */
async function rescue(): Promise<string> {
  if (!training || proofs.snapshot === 0) return "";
  try {
    for await (const event of training.rescue(proofs.snapshot)) show(event);
    return "";
  } catch (error) {
    return `; its last snapshot was not kept: ${(error as Error).message}`;
  }
}

/** Keeps the model soon: the page may be about to end. */
export function hurry(): void {
  training?.hurry();
}

/** Whether files may be brought now. */
export const ready = (): boolean => opened !== undefined && !busy();
