/** How a visit begins: with what its address asks for, with the run of the visit before, or with a run by itself. */
import { TinyloomError } from "tinyloom/worker";
import {
  attempt,
  beginGuest,
  chosenText,
  fail,
  fits,
  inside,
  kernels,
  learning,
  proofs,
  refused,
  rescue,
  resume,
  SOLVED,
  session,
  setup,
  stage,
  store,
  train,
} from "./control.ts";
import { whole } from "./dom.ts";
import { type Open, openLab } from "./lab.ts";
import { applyLink, type Linked, readLink } from "./link.ts";
import { keepForOffline } from "./offline.ts";
import { openRun } from "./open.ts";
import { showCapabilities } from "./panels/machine.ts";
import { say } from "./panels/status.ts";
import { presetFor } from "./presets.ts";
import { remembered } from "./remember.ts";
import { isInUse } from "./run-store.ts";
import { FIRST } from "./tasks/index.ts";
import { makeAhead } from "./text.ts";
import type { Training, TrainingEvent } from "./training.ts";
import { goneWords, unreachable } from "./words.ts";

/** How often the page tries to open the run that it was at. Each try waits a second for the run's lock. */
const TRIES = 5;

/** The run that the page opens with. It ends when its task is solved. */
const beginOpening = (): Promise<void> =>
  beginGuest("Opening run", {
    ends: (event) =>
      event.type === "score" && event.score.right >= SOLVED * event.score.of
        ? "stopped"
        : undefined,
    said: (step) =>
      `${learning.score} of the unseen problems are solved after ${whole(step)} steps. ` +
      "Ask it a word of your own, or choose what it learns next.",
  });

/** Does what a link asks for as far as that goes without a GPU. */
function followRecorded({ lesson, step, cut }: Linked): void {
  if (lesson !== undefined) attempt(() => study(lesson));
  if (lesson !== undefined) return;
  closeLesson();
  if (step === undefined) return;
  // The link may be of another run, which was not recorded.
  stage.showRecording(step, cut);
  stage.say(
    "The link is of a run that is trained, for which this browser offers no GPU. This is a recording.",
  );
}

/** Without a GPU the stage plays a recorded run, and the page has no control that does nothing. */
function withoutGpu(): void {
  document.body.dataset["gpu"] = "none";
  stage.withoutGpu();
  void stage.playRecording();
  keepForOffline();
  const link = readLink(location.hash);
  if (link) followRecorded(link);
}

/** The run that this browser was at when the page ended. */
async function lastRun(): Promise<{ name: string; training: boolean } | undefined> {
  const last = remembered();
  const run = last && (await store()!.list()).find(({ id }) => id === last.id);
  return run && { name: run.name, training: last.training };
}

/** Goes on with it. Gives whether another tab has it. */
async function comeBack({ name, training }: { name: string; training: boolean }): Promise<boolean> {
  let elsewhere = false;
  // The page before this one may hold it for a moment; another tab may hold it for long.
  const patient = async ({ lab, store }: Open): Promise<Training> => {
    for (let tries = 1; ; tries++) {
      try {
        return await openRun(lab, store, name, chosenText);
      } catch (error) {
        if (!isInUse(error) || tries === TRIES) throw error;
      }
    }
  };
  await resume(name, training, patient, (error) => {
    elsewhere = isInUse(error);
    if (!elsewhere) refused(error);
  });
  return elsewhere;
}

/** What became of a link's settings. */
function linked(unfit: readonly string[]): string {
  const left =
    unfit.length > 0 ? ` Left out, since the form does not take it: ${unfit.join(", ")}.` : "";
  return `The link's settings are in the form.${left} Start trains with them.`;
}

/** Trains a run of a lesson on what the form has. It ends with the page. */
function teach(values: { readonly [id: string]: string }, text: string): void {
  session.want(() => {
    setup.paste = text;
    applyLink(new URLSearchParams(values));
    const ends = (event: TrainingEvent) =>
      event.type === "score" && event.score.right >= SOLVED * event.score.of
        ? ("stopped" as const)
        : undefined;
    const said = (step: number) => `The lesson's model has made ${whole(step)} steps.`;
    attempt(() => beginGuest("Run of a lesson", { ends, said }, []), fail);
  });
}

/** Does what a link asks for. A run that this browser was at is offered. */
async function follow(link: Linked): Promise<void> {
  if (link.lesson !== undefined) return study(link.lesson);
  closeLesson();
  const { run, guest } = session;
  const own = run && !guest ? { name: run.run.name, training: false } : undefined;
  const before = own ?? (await lastRun());
  const { step } = link;
  if (session.state === "loading") session.go("settle");
  const unfit = applyLink(link.values);
  const told = linked(unfit);
  if (step === undefined || typeof setup.text() === "string") {
    say(told);
    keepForOffline();
  } else {
    const { steps, seed } = setup.choices();
    const what = `${setup.label.toLowerCase()}, ${whole(steps ?? 0)} steps, seed ${seed}`;
    attempt(async () => {
      let reached = false;
      const ends = (event: TrainingEvent) => {
        if (reached || event.type !== "step" || event.step < step) return undefined;
        // Whoever trains on from here is not stopped again.
        reached = true;
        return "paused" as const;
      };
      const said = (at: number) =>
        at === step
          ? `This is the link's moment, step ${whole(at)}. Resume trains on from here.`
          : `The link's run stands at step ${whole(at)}.`;
      if (!(await fits())) return;
      await beginGuest("Run of a link", { ends, said }, link.cut);
      if (session.state === "paused") stage.offer("Train on", () => attempt(train, fail));
    }, fail);
    stage.say(
      `A link: ${what}, trained here up to step ${whole(step)}. On another GPU details may differ.`,
    );
  }
  if (before) {
    stage.offer(`Back to my run “${before.name}”`, () =>
      session.want(() => attempt(() => resume(before.name, before.training), fail)),
    );
  }
}

/** Ends the lesson that is open, if one is. */
let closeLesson: () => void = () => undefined;

/** Opens a lesson. */
async function study(number: number): Promise<void> {
  if (session.state === "loading") session.go("settle");
  const lessons = await import("./lessons/lesson.ts").catch(unreachable);
  closeLesson = lessons.closeLesson;
  const trains = session.opened !== undefined;
  if (!lessons.openLesson(number, { stage, trains, train: teach })) say("There is no such lesson.");
}

/** The page's address has changed, or was asked for. */
export function arrive(): void {
  const link = readLink(location.hash);
  if (!link) return;
  if (session.state === "error" && !session.opened) followRecorded(link);
  else session.want(() => attempt(() => follow(link), fail));
}

/** Opens the page: the GPU, and what the address or the visit before asks for. */
async function opens(): Promise<void> {
  const link = readLink(location.hash);
  const fresh = !link && !remembered();
  void stage.playRecording();
  if (fresh) {
    say("Getting ready. Your own model begins in a moment.");
    makeAhead(FIRST, setup.choices().seed!);
  }
  const opened = await openLab((state) => proofs.recovery(state));
  const { capabilities, lost } = opened.lab.runtime;
  session.open(opened);
  void lost.then(async ({ message }) => {
    session.lose();
    proofs.end();
    kernels.end();
    inside.end();
    const why = await rescue();
    fail(new TinyloomError("device-lost", goneWords(message, why)));
  });
  setup.ofTexts = presetFor(capabilities);
  showCapabilities(capabilities);
  // What is looked at costs a GPU next to nothing.
  if (!capabilities.software) inside.open();
  if (session.wants) return session.go("settle");
  if (fresh) return beginOpening();
  const last = await lastRun();
  // A link wins over the remembered run, unless that was begun with this link.
  if (last && (!link || remembered()?.link === location.hash)) {
    if (!(await comeBack(last))) return;
    stage.say(`“${last.name}” is open in another tab, and goes on there.`);
    return say("Another tab has your run. Start begins another one here.");
  }
  if (link) return follow(link);
  session.go("settle");
  say("Ready.");
  keepForOffline();
}

/** Opens the page. Without a GPU the recording plays. */
export async function open(): Promise<void> {
  try {
    await opens();
  } catch (error) {
    if (!session.opened && !session.left) withoutGpu();
    fail(error);
  }
}
