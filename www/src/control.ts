/** What the page does: it has one run at a time, and says in `data-state` of the body what becomes of it. */
import { TinyloomError } from "tinyloom/worker";
import { byId, download, whole } from "./dom.ts";
import { type Folder, importModel, importRun, kindOf } from "./import.ts";
import type { Open } from "./lab.ts";
import { showChip } from "./loom/chips.ts";
import { Stage } from "./loom/stage.ts";
import { keepForOffline } from "./offline.ts";
import { beginRun, openRun, orFreed } from "./open.ts";
import { AskPanel } from "./panels/ask.ts";
import { BenchmarkPanel } from "./panels/benchmark.ts";
import { showState } from "./panels/buttons.ts";
import { InsidePanel } from "./panels/inside.ts";
import { KernelsPanel } from "./panels/kernels.ts";
import { LearningPanel } from "./panels/learning.ts";
import { showModel, showPlan, showSpeed } from "./panels/machine.ts";
import { ProofsPanel } from "./panels/proofs.ts";
import { RunsPanel } from "./panels/runs.ts";
import { SamplesPanel } from "./panels/samples.ts";
import { SetupPanel } from "./panels/setup.ts";
import { clearError, say, showError } from "./panels/status.ts";
import { failureOf } from "./presets.ts";
import { remember } from "./remember.ts";
import type { RunStore } from "./run-store.ts";
import { type Guest, type Halt, Session, type State } from "./session.ts";
import { type RunSettings, resolveSettings } from "./settings.ts";
import { shapeOf } from "./shape.ts";
import { tasks } from "./tasks/index.ts";
import { LazyTeachPanel } from "./teach/lazy-panel.ts";
import { readText, type Text } from "./text.ts";
import type { Training, TrainingEvent } from "./training.ts";
import type { TuneHost } from "./tune/host.ts";
import { LazyTunePanel } from "./tune/lazy-panel.ts";

export const session = new Session<Open, Training, TrainingEvent>(changed, () => halt("stopped"));
export const setup = new SetupPanel();
export const learning = new LearningPanel();
const samples = new SamplesPanel();
const ask = new AskPanel();
export const inside = new InsidePanel();
export const kernels = new KernelsPanel();
export const proofs = new ProofsPanel(session);
const benchmark = new BenchmarkPanel();
export const stage = new Stage();

/** The share of unseen problems that counts as solved. */
export const SOLVED = 0.98;
/** Of a run that storage has no place for. */
const IN_MEMORY = "The run ends with the page: export it to keep it.";

const host: TuneHost = {
  opened: () => session.opened,
  lost: () => session.left !== undefined,
  training: () => session.run,
  busy: () => session.busy,
};
const tune = new LazyTunePanel(host);
const teach = new LazyTeachPanel(host);

const runs = new RunsPanel({
  resume: (name) => {
    if (session.free) attempt(() => resume(name), fail);
  },
  export: (name) => attempt(() => exportRun(name)),
  rename: (name, to) => attempt(() => change((store) => store.rename(name, to))),
  delete: (names) => {
    const what =
      names.length === 1
        ? `the run “${names[0]}” with its model and its text`
        : `all ${names.length} runs, with their models and texts`;
    if (!confirm(`Delete ${what}?`)) return;
    attempt(() => deleteRuns(names));
  },
  compare: (names) => attempt(() => compare(names)),
});

/** The runs that are kept; undefined before there was a GPU. */
export const store = (): RunStore | undefined => (session.opened ?? session.left)?.store;

/** Shows what has become of the run. */
function changed(state: State): void {
  const { run, opened, busy, ending } = session;
  showState(state, { ready: ready(), run: run !== undefined, ending });
  setup.disabled = busy || state === "paused";
  if (!busy) {
    learning.end();
    if (state === "stopped") stage.end();
    else stage.tell();
    inside.refresh();
  }
  proofs.training = busy;
  benchmark.busy = !ready();
  ask.disabled = run === undefined || state === "loading" || !opened;
  if (state !== "loading") attempt(showRuns);
  else tune.changed();
  teach.changed();
  attempt(async () => void (await judged()));
  if (state === "stopped" && !session.wants) keepForOffline();
}

/** Does something, and shows what goes wrong in it. */
export function attempt(
  work: () => Promise<void>,
  failed: (error: unknown) => void = showError,
): void {
  work().catch(failed);
}

/** Shows a failure that ends the run, or the opening of the page. */
export function fail(error: unknown): void {
  showError(error);
  const { run, opened } = session;
  if (run && !session.guest) remember({ id: run.run.id, training: !opened });
  session.go("fail");
  stage.say(opened ? "Something went wrong; below it says what." : "");
  const stands = run?.stored ? ` The run stands at step ${whole(run.stored.step)}.` : "";
  const kept = run?.inMemory && !session.guest ? ` ${IN_MEMORY}` : "";
  say(opened ? "The run has ended." : `No GPU to train on.${stands}${kept}`);
}

async function showRuns(): Promise<void> {
  const kept = store();
  const { run, opened, busy, proving } = session;
  // Of a run whose GPU is gone only what is stored is left.
  const current = run && { id: run.run.id, step: opened ? run.step : 0 };
  if (kept) await runs.show(kept, current, { busy, proving, ready: ready() });
  tune.changed();
}

/** Hands out a run as a zip, with all that has happened in it. */
async function exportRun(name: string): Promise<void> {
  const { run } = session;
  if (run?.run.name === name) for await (const event of run.keep()) show(event);
  download(await store()!.export(name), `${name}.zip`);
}

/** Changes the list of runs. */
async function change(work: (store: RunStore) => Promise<void>): Promise<void> {
  clearError();
  await work(store()!).finally(showRuns);
  await compare(runs.compared());
}

/** Deletes runs. If one is the page's own, the page has no run afterwards. */
async function deleteRuns(names: readonly string[]): Promise<void> {
  const own = session.run !== undefined && names.includes(session.run.run.name);
  if (own && session.proving) return;
  if (own && session.opened) session.go("load");
  if (own) await leave();
  try {
    await change(async (store) => {
      for (const name of names) await store.delete(name);
    });
  } finally {
    // A GPU that is lost meanwhile has said so.
    if (own && session.state === "loading") {
      proofs.end();
      kernels.end();
      session.go("settle");
      say("Ready.");
    }
  }
}

async function compare(names: readonly string[]): Promise<void> {
  learning.compare(await Promise.all(names.map((name) => store()!.curve(name))));
}

function show(event: TrainingEvent): void {
  const { run, guest } = session;
  document.dispatchEvent(new CustomEvent("tinyloom:training", { detail: event }));
  learning.show(event);
  stage.show(event);
  if (event.type === "weights" && run) stage.add(run, event.step, event.file);
  const trains = session.state === "training" && !session.halting;
  const ends = trains ? guest?.ends(event) : undefined;
  if (ends) halt(ends);
  if (event.type === "writing") samples.write(event.step, event.token);
  if (event.type === "sample") {
    samples.add(event.step, event.pieces, event.tokens);
    inside.sampled(event.tokens);
  }
  if (event.type === "stored" && run) {
    runs.stored(run.run.id, event.stored, run.settings.steps, event.validation);
  }
  if (event.type === "score" && run) runs.scored(run.run.id, { ...event.score, step: event.step });
  if (event.type === "full") {
    say(
      "The storage is full. The run goes on in memory and ends with the page: stop it, then export it.",
    );
    attempt(showRuns);
  }
  if (event.type === "step") {
    if (run) runs.stepped(run.run.id, event.step);
    kernels.stepped();
    if (event.tokensPerSecond) showSpeed(event.tokensPerSecond);
    proofs.stepped();
  }
  if (event.type === "step" && event.skipped) {
    say(`Step ${whole(event.step)} was skipped: its loss or gradient was not finite.`);
  }
}

/** Leaves the page's run, which stays in the list. */
async function leave(): Promise<void> {
  const before = session.leave();
  remember(undefined);
  await before?.free();
}

/** How a run ends that the page begins by itself. */
export type Ends = Omit<Guest<Training, TrainingEvent>, "run">;

/**
 * Makes a run the page's, with what happened in it so far. The one before stays in the list.
 *
 * @param guest - how it ends, where the page has begun it by itself.
 */
async function take(made: Training, guest?: Ends): Promise<void> {
  const before = session.take(made, guest);
  try {
    await present(made);
  } finally {
    await before?.free();
  }
  for await (const event of made.past()) show(event);
  for await (const event of made.weights()) show(event);
  showModel(made);
  // In a task of its own: the worker begins the first step before it.
  setTimeout(() => attempt(() => showPlanOf(made)));
}

/** Shows the plan of a run, if that is the page's still. */
async function showPlanOf(made: Training): Promise<void> {
  try {
    const rows = await made.plan();
    if (session.run === made) showPlan(rows);
  } catch (error) {
    if (session.run === made) throw error;
  }
}

/** Hands a run to all panels. */
async function present(made: Training): Promise<void> {
  showChip(made.text.source);
  await stage.take(made);
  made.wants = (step, last) => stage.due(step, last);
  learning.start(made);
  samples.start(made.task && tasks[made.task]);
  ask.start(made);
  inside.start(made);
  kernels.start(made, session.opened!.lab.runtime.capabilities.software);
  proofs.start(session.opened!.lab, made);
}

/**
 * Makes a run as one transaction: reads what it needs, makes it, makes it the page's, and only then frees the one
 * before. What fails on the way leaves that one as it was.
 *
 * @returns the run, unless it failed.
 */
export async function exchange(
  what: string,
  make: (opened: Open) => Promise<Training>,
  { guest, failed = refused }: { guest?: Ends; failed?: (error: unknown) => void } = {},
): Promise<Training | undefined> {
  clearError();
  session.go("load");
  say(what);
  let made: Training;
  try {
    made = await make(session.opened!);
  } catch (error) {
    // A GPU that is lost meanwhile has said so.
    if (session.state !== "loading") return undefined;
    session.back();
    failed(error);
    return undefined;
  }
  await take(made, guest);
  return made;
}

/** Says why a run did not come to be. */
export function refused(error: unknown): void {
  showError(error);
  stage.say(byId("error", HTMLElement).firstElementChild?.textContent ?? "");
  const { run } = session;
  say(run ? `That did not work. “${run.run.name}” is as it was.` : "That did not work.");
}

export async function train(): Promise<void> {
  const { run } = session;
  if (!run) return;
  if (session.proving) return say("Wait until the proof is over, then press Resume.");
  const lasts = !session.guest;
  // Who has asked for something else while this run was made does not wait for its end.
  if (session.busy && session.wants) {
    if (lasts) remember(undefined);
    return session.go("stop");
  }
  clearError();
  if (lasts) remember({ id: run.run.id, training: true });
  session.go("train");
  say(run.inMemory && lasts ? `Training. ${IN_MEMORY}` : "Training.");
  for await (const event of run.steps()) show(event);
  // The model as it stands now is on the loom, whichever steps were.
  for await (const event of run.weights(true)) show(event);
  if (session.state !== "training") return;
  if (session.halting === "paused" && !run.finished) {
    if (lasts) remember({ id: run.run.id, training: false });
    const said = session.guest?.said(run.step) ?? `Paused after step ${whole(run.step)}.`;
    session.go("pause");
    say(said);
  } else await end(run);
}

/** Ends a run, with a sample. */
async function end(run: Training): Promise<void> {
  const { step, finished } = run;
  const { guest } = session;
  // It cannot be halted any more.
  session.go("end");
  if (!guest) remember(undefined);
  for await (const event of run.score()) show(event);
  for await (const event of run.sample()) show(event);
  for await (const event of run.keep()) show(event);
  for await (const event of run.weights(true)) show(event);
  session.go("stop");
  if (guest) return say(guest.said(step));
  const kept = run.inMemory ? ` ${IN_MEMORY}` : "";
  const done = failureOf(run.settings) ?? "Ask it for more below.";
  say(`${finished ? `Done. ${done}` : `Stopped after step ${whole(step)}.`}${kept}`);
}

/** Teaches a new model something of the form's. */
export function learn(source: string): void {
  const { run, guest, state } = session;
  const own = state === "training" && run && !guest;
  if (own && !confirm(`This stops “${run.run.name}”. It stays in the list of runs.`)) return;
  if (source === "paste") {
    const early = state === "loading";
    if (early) say("You can paste your text in a moment.");
    session.want(() => {
      setup.ask();
      if (early) say("Paste your text, then press Start.");
    });
    return;
  }
  showChip(source);
  stage.say("A new model is being set up. What is shown until then is the one before.");
  session.want(() => {
    setup.choose(source);
    // The loom shows it, from where it was asked for.
    attempt(() => begin(false), fail);
  });
}

/** Whether leaving the page loses something: steps, or a whole run where there is no storage. */
export const leavingLoses = (): boolean =>
  tune.leavingLoses ||
  teach.leavingLoses ||
  (!session.guest &&
    (session.state === "training" || session.ending || Boolean(session.run?.inMemory)));

export function halt(how: Halt): void {
  const { run, state } = session;
  session.halt(how);
  if (state === "paused" && run) {
    attempt(() => end(run), fail);
    return;
  }
  say(how === "paused" ? "Pausing after this step…" : "Stopping after this step…");
  run?.halt();
}

/** Shows what a run of the form's settings takes; gives why it is refused. */
async function judged(): Promise<string | undefined> {
  const { opened, busy } = session;
  return opened && !busy ? setup.judge(opened.lab, settingsOf()) : undefined;
}

/** The visitor has changed the form. */
export function formChanged(): void {
  if (!session.run) learning.preview(setup.scores);
  attempt(async () => {
    const refused = await judged();
    // A field that keeps Start from starting has been named, or will be.
    if (session.busy || session.state === "paused") return;
    if (setup.element.querySelector(":invalid")) return;
    const missing = setup.text();
    if (refused) say("This model cannot be trained: see above.");
    else say(typeof missing === "string" ? missing : "Ready.");
  });
}

function settingsOf(choices = setup.choices()): RunSettings {
  return resolveSettings(choices, session.opened!.lab.runtime.capabilities)!;
}

/** The text chosen in the form, for a run of these settings. */
export async function chosenText(settings: RunSettings): Promise<Text> {
  const text = setup.text();
  if (typeof text === "string") {
    throw new TinyloomError("invalid-options", text);
  }
  return readText(text, settings);
}

/** A new run of the form's settings. */
async function newRun({ lab, store }: Open, name: string, lasting = true): Promise<Training> {
  const [settings, vocabulary] = [settingsOf(), setup.vocabulary];
  const text = await chosenText(settings);
  const fewer = !setup.ownVocabulary;
  return beginRun(lab, store, { name, settings, text, vocabulary, fewer, lasting });
}

/** Whether this machine can train a run of the form's settings; else it is said why not. */
export async function fits(): Promise<boolean> {
  const settings = settingsOf();
  session.go("load");
  const refused = await setup.judge(session.opened!.lab, settings);
  if (!refused) return true;
  session.back();
  say(refused);
  return false;
}

/**
 * Begins a run of the form's settings.
 *
 * @param reveal - whether its curve is brought into view.
 */
export async function begin(reveal = true): Promise<void> {
  const chosen = setup.text();
  if (typeof chosen === "string") return say(chosen);
  if (!(await fits())) return;
  const last = session.run;
  const made = await exchange("Compiling the model for this GPU…", (opened) =>
    newRun(opened, setup.name),
  );
  if (!made) return;
  if (last && made.isLike(last)) await compare(runs.choose(last.run.id));
  if (reveal) learning.reveal();
  await train();
}

/**
 * Begins a run by itself, so that a visitor sees a model learn at once. It ends with the page.
 *
 * @param cut - heads that are cut, where the run is shown from its beginning.
 */
export async function beginGuest(
  name: string,
  guest: Ends,
  cut?: readonly number[],
): Promise<void> {
  const what = "Getting ready. Your own model begins in a moment.";
  stage.shows(cut);
  let made: Training | undefined;
  try {
    made = await exchange(what, (opened) => newRun(opened, name, false), { guest });
  } finally {
    if (!made) stage.shows(undefined);
  }
  if (made) await train();
}

/**
 * Goes on with a run of the list, at its newest checkpoint.
 *
 * @param goOn - whether it trains, where it has not ended.
 * @param open - opens it.
 * @param failed - hears why that did not work.
 */
export async function resume(
  name: string,
  goOn = false,
  open = ({ lab, store }: Open) => openRun(lab, store, name, chosenText),
  failed = refused,
): Promise<void> {
  const { run } = session;
  const here = run?.run.name === name && session.state !== "error" ? run : undefined;
  // What has failed is read anew.
  if (run?.run.name === name && !here) await leave();
  const made = here ?? (await exchange(`Loading “${name}”…`, open, { failed }));
  if (!made) return;
  await setup.show(made.settings, made.text);
  if ((goOn || here) && !made.finished) return train();
  remember({ id: made.run.id, training: false });
  session.go("load");
  session.stand(made.finished);
  const { step, settings } = made;
  const next = made.finished ? "ask it for text" : "resume, or ask it for text";
  say(`Loaded “${name}” at step ${whole(step)} of ${whole(settings.steps)}: ${next}.`);
}

/** Keeps what was dropped or picked as a run, and opens it. */
export async function bring(folder: Folder): Promise<void> {
  if (!session.opened) return;
  if (!ready()) return say("Bring the file again once this run has stopped, or its proof is over.");
  const kind = kindOf(folder);
  if (kind === "text") {
    setup.take(Object.values(folder.files)[0]);
    return formChanged();
  }
  if (kind === "other")
    return say("That is neither a run, a model with its config.json, nor one text.");
  if (kind === "run") {
    const name = await importRun(session.opened!.store, folder);
    return resume(name);
  }
  const made = await exchange(`Importing ${folder.name}…`, async ({ lab, store }) => {
    const pretrained = await importModel(lab, folder);
    return orFreed(pretrained.model, undefined, async () => {
      const { config } = pretrained.model;
      const choices = setup.choices();
      const longest = Math.min(choices.sequenceLength!, shapeOf(config).positions ?? 128);
      const settings = settingsOf({ ...choices, config, sequenceLength: longest });
      const text = await chosenText(settings);
      return beginRun(lab, store, { name: folder.name, settings, text, pretrained });
    });
  });
  if (!made) return;
  for await (const event of made.keep()) show(event);
  remember({ id: made.run.id, training: false });
  session.stand();
  say(`Loaded ${folder.name}: ask it for text, or resume to train it on ${made.text.name}.`);
}

/** Keeps what the GPU leaves of the run; gives why that failed, if it did. */
export async function rescue(): Promise<string> {
  const { run } = session;
  if (!run || proofs.snapshot === 0) return "";
  try {
    for await (const event of run.rescue(proofs.snapshot)) show(event);
    return "";
  } catch (error) {
    return `; its last snapshot was not kept: ${(error as Error).message}`;
  }
}

/** Keeps the model soon: the page may be about to end. */
export function hurry(): void {
  session.run?.hurry();
}

/** Whether a run may begin now. A proof uses the present one's text. */
export const ready = (): boolean => session.opened !== undefined && session.free;
