/** The fine-tune panel: an adapter on a finished model learns from chats, and answers beside it. */
import { type StepMetrics, TinyloomError } from "tinyloom/worker";
import { byId, bytes, download, whole } from "../dom.ts";
import { disable, handOn, isDisabled } from "../focus.ts";
import type { Folder } from "../import.ts";
import { invalidField, revealInvalid } from "../reveal.ts";
import type { Chat } from "../tune/chats.ts";
import { type TuneCost, tuneCost } from "../tune/cost.ts";
import type { TuneHost } from "../tune/host.ts";
import { type Reading, Tuning } from "../tune/tuning.ts";
import { stageWords } from "../words.ts";
import { clearError, showErrorIn } from "./status.ts";
import { TuneAnswers } from "./tune-answers.ts";
import { TuneChoice } from "./tune-choice.ts";
import { TuneExamples } from "./tune-examples.ts";
import { chosen, fitTokens, showCost, suit } from "./tune-form.ts";
import { TuneLearning } from "./tune-learning.ts";
import { TuneStage } from "./tune-stage.ts";

type TuneState = "waiting" | "reading" | "ready" | "loading" | "training" | "paused" | "done";

/** Failures in words for this panel, where they are not those of the page. */
const WORDS: { readonly [code: string]: string } = {
  "out-of-memory":
    "The GPU has too little memory left for this. Choose weights of fewer bits, fewer tokens per step, or close other tabs.",
  "limit-exceeded":
    "This GPU does not take a model of that size. Choose weights of fewer bits, or a smaller model.",
  "invalid-config":
    "The page cannot fine-tune a model of that kind: its config.json asks for what is not supported.",
  "invalid-checkpoint":
    "These files are no model that the page can read, or a part of them is damaged.",
  internal:
    "Something went wrong inside. Reload the page; an adapter that was not downloaded is lost.",
};

interface Loaded {
  readonly reading: Reading;
  readonly settings: string;
}

const same = (a: Loaded, b: Loaded | undefined): boolean =>
  a.reading === b?.reading && a.settings === b.settings;

const button = (id: string) => byId(`tune-${id}`, HTMLButtonElement);

export class TunePanel {
  readonly #host: TuneHost;
  readonly #section = byId("tune-panel", HTMLElement);
  readonly #error = byId("tune-error", HTMLElement);
  readonly #form = byId("tune-form", HTMLFormElement);
  readonly #choice: TuneChoice;
  readonly #learning = new TuneLearning();
  readonly #answers = new TuneAnswers();
  readonly #stage = new TuneStage({
    weave: () => void this.#look(),
    train: () => this.#form.requestSubmit(),
    pause: () => this.#halt("paused"),
  });
  readonly #examples = new TuneExamples((error) => this.#fail(error));
  #state: TuneState = "waiting";
  #reading: Reading | undefined;
  #cost: TuneCost | undefined;
  #tuning: Tuning | undefined;
  /** What the model was loaded for: chats and settings. */
  #loaded: Loaded | undefined;
  /** The step at which the adapter was downloaded last. */
  #saved = 0;
  /** Ends what is being loaded or written. */
  #work: AbortController | undefined;
  #asking = false;
  /** What ends the training before its last step. */
  #halting: "paused" | "done" | undefined;
  #judged = 0;
  /** Bytes of the page's own model when the choices were judged last. */
  #weighed = 0;
  /** Whether the page trained when that was last told. */
  #busy = false;

  constructor(host: TuneHost) {
    this.#host = host;
    this.#choice = new TuneChoice(host, {
      reading: (what) => this.#unread(what),
      read: (reading, ofPage) => this.#read(reading, ofPage),
      failed: (error) => this.#fail(error),
      waiting: (why) => this.#wait(why),
    });
    revealInvalid(this.#form, (text) => this.#say(text));
    this.#form.addEventListener("change", () => void this.#judgeAgain());
    this.#form.addEventListener("submit", (event) => {
      event.preventDefault();
      void this.#run();
    });
    button("pause").addEventListener("click", () => this.#halt("paused"));
    button("stop").addEventListener("click", () => this.#halt("done"));
    button("save").addEventListener("click", () => void this.#save());
    button("look").addEventListener("click", () => void this.#look(this.#answers.prompts[0] ?? ""));
    byId("tune-ask", HTMLFormElement).addEventListener("submit", (event) => {
      event.preventDefault();
      void this.#askBoth();
    });
  }

  /** The page's run, its runs or its GPU are others now. */
  changed(): void {
    if (!this.#host.opened()) {
      if (this.#host.lost()) this.#end();
    } else if (!this.#active && !this.#asking) this.#choice.refresh();
    this.#enable();
    const busy = this.#host.busy();
    if (busy !== this.#busy && this.#state === "ready") this.#sayReady();
    this.#busy = busy;
    // What was refused beside the page's own model may fit without it.
    if (this.#reading && this.#present !== this.#weighed) void this.#judgeAgain();
  }

  /** Takes a folder, or a file of chats. */
  bring(folder: Folder): void {
    if (this.#active || this.#asking || !this.#host.opened()) {
      this.#say("Not now: stop first, or wait until the page is ready.");
      return;
    }
    const files = Object.values(folder.files);
    const chats = files.length === 1 && /\.(jsonl|json|csv|tsv|txt)$/i.test(files[0]!.name);
    if (chats && files[0]!.name !== "config.json") this.#choice.takeChats(files[0]!);
    else this.#choice.takeFolder(folder);
  }

  /** Whether leaving the page loses an adapter. */
  get leavingLoses(): boolean {
    return this.#state === "training" || (this.#tuning?.step ?? 0) > this.#saved;
  }

  /** Whether an adapter is being made, or can go on. */
  get #active(): boolean {
    return ["loading", "training", "paused"].includes(this.#state);
  }

  #say(text: string): void {
    byId("tune-status", HTMLElement).textContent = text;
    this.#stage.say(text);
  }

  #set(state: TuneState): void {
    this.#state = state;
    this.#section.dataset["state"] = state;
    this.#enable();
  }

  #enable(): void {
    const state = this.#state;
    const ready = state === "ready" || state === "done";
    const free = this.#host.opened() !== undefined && !this.#host.busy() && !this.#asking;
    const choices = byId("tune-choices", HTMLFieldSetElement);
    choices.disabled = this.#active || this.#asking;
    const start = button("start");
    start.textContent = state === "paused" ? "Go on" : "Train the adapter";
    // With an invalid field the button stays enabled, so that submitting shows the field.
    const begins = ready && this.#reading !== undefined && !this.#cost?.refused;
    disable(start, !(free && (state === "paused" || begins)));
    disable(button("pause"), state !== "training");
    disable(button("stop"), !this.#active);
    if (this.#active) handOn(choices, button("stop"));
    const idle = this.#tuning !== undefined && (state === "paused" || ready);
    disable(button("save"), !idle || this.#asking);
    disable(button("again"), !idle || this.#asking);
    const looks = !this.#asking && (idle || (free && begins));
    disable(button("look"), !looks);
    this.#stage.enable(start, button("pause"), looks);
  }

  /** Whether an adapter can be begun. */
  #sayReady(): void {
    const invalid = invalidField(this.#form);
    if (this.#host.busy()) {
      this.#say("The page trains a model of its own. Stop that first, or wait until it is done.");
    } else if (invalid) this.#say(invalid);
    else if (!this.#cost?.refused) this.#say("Ready.");
    else if (this.#cost.estimate) this.#say("It does not fit: the note above says why.");
    else this.#say("It is refused: the note above says why.");
  }

  /** Nothing can be read yet. */
  #wait(why: string): void {
    this.#reading = undefined;
    this.#cost = undefined;
    showCost(undefined, 0, 0);
    byId("tune-reading", HTMLElement).hidden = true;
    this.#set("waiting");
    this.#say(why);
  }

  #unread(what = "Reading the chats…"): void {
    clearError(this.#error);
    this.#reading = undefined;
    this.#set("reading");
    this.#say(what);
  }

  /** The chats are read. */
  async #read(reading: Reading, ofPage: boolean | undefined): Promise<void> {
    const { base, chats, dataset } = reading;
    this.#reading = reading;
    if (ofPage === undefined) fitTokens(dataset.sequenceLength);
    else suit(base, ofPage, dataset.sequenceLength);
    byId("tune-asking", HTMLElement).hidden = false;
    byId("tune-reading", HTMLElement).hidden = false;
    this.#answers.propose(chats as Chat[]);
    await this.#examples.show(reading);
    await this.#judge();
    if (this.#reading !== reading) return;
    this.#set("ready");
    this.#sayReady();
  }

  /** Bytes of the page's own model. */
  get #present(): number {
    return this.#host.training()?.model.gpuBytes ?? 0;
  }

  /** Shows what the choices take. */
  async #judge(): Promise<void> {
    const opened = this.#host.opened();
    const settings = this.#reading && chosen(this.#reading.base);
    const judged = ++this.#judged;
    const present = this.#present;
    this.#weighed = present;
    const cost =
      opened && settings && (await tuneCost(opened.lab, this.#reading!.base, settings, present));
    if (judged !== this.#judged) return;
    this.#cost = cost;
    showCost(cost, settings?.steps ?? 0, present);
    this.#enable();
  }

  /** The choices, or what lies on the GPU beside, are others now. */
  async #judgeAgain(): Promise<void> {
    await this.#judge();
    if (this.#state === "ready") this.#sayReady();
  }

  #fail(error: unknown): void {
    if (TinyloomError.from(error).code === "aborted") return;
    // What was under way when the GPU went rejects late; `#end` says why.
    if (!this.#host.opened()) return;
    showErrorIn(this.#error, error, WORDS);
    this.#set(this.#tuning ? "done" : this.#reading ? "ready" : "waiting");
    this.#say("That did not work: what went wrong is said above.");
    this.#error.scrollIntoView({ block: "nearest" });
  }

  /** Begins an adapter, or goes on with it. */
  async #run(): Promise<void> {
    clearError(this.#error);
    try {
      if (this.#state !== "paused" && !(await this.#begin())) return;
      await this.#train();
    } catch (error) {
      this.#fail(error);
    }
    await this.#judge();
    this.changed();
  }

  /** Makes the adapter, and asks the model before it has learned. Gives whether it is there. */
  async #begin(): Promise<boolean> {
    const [opened, reading] = [this.#host.opened(), this.#reading];
    const settings = reading && chosen(reading.base);
    if (!opened || !settings) return false;
    await this.#judge();
    if (this.#cost?.refused) {
      this.#say(this.#cost.refused);
      return false;
    }
    const wanted = { reading, settings: JSON.stringify(settings) };
    // It was loaded to be looked at.
    if (this.#tuning?.step === 0 && same(wanted, this.#loaded)) return true;
    const { signal } = this.#works();
    this.#set("loading");
    this.#say("Loading the model…");
    await this.#tuning?.free();
    this.#tuning = undefined;
    this.#saved = 0;
    this.#loaded = wanted;
    try {
      this.#tuning = await Tuning.begin(opened.lab, reading, settings, signal, (progress) => {
        const { loaded, total, stage } = progress;
        const all = total > 0 ? ` of ${bytes(total)}` : "";
        this.#say(`${stageWords(stage)}: ${bytes(loaded)}${all}`);
      });
      this.#learning.start(this.#tuning);
      this.#stage.start(this.#tuning);
      this.#answers.clear();
      this.#say("Asking the model before it has learned…");
      await this.#answers.ask(this.#tuning, false, signal);
    } catch (error) {
      if (TinyloomError.from(error).code !== "aborted") throw error;
      this.#set(this.#tuning ? "done" : "ready");
      this.#say("Stopped.");
      return false;
    }
    return true;
  }

  #works(): AbortController {
    this.#work = new AbortController();
    return this.#work;
  }

  async #train(): Promise<void> {
    const tuning = this.#tuning!;
    this.#halting = undefined;
    this.#set("training");
    const { adapter, base } = tuning.weights;
    this.#say(
      `Training ${whole(adapter)} weights of the adapter. The model’s ${whole(base)} stay as they are.`,
    );
    for await (const event of tuning.steps()) {
      this.#learning.show(event);
      if (event.type === "step") await this.#follow(tuning, event.metrics);
    }
    this.#learning.end();
    const { step, finished } = tuning;
    this.#set(finished ? "done" : (this.#halting ?? "done"));
    await this.#asks("Asking the model with its adapter…", true);
    // Stop may have ended the pause while the model was asked.
    const how = finished ? "Done" : this.#state === "paused" ? "Paused" : "Stopped";
    this.#say(`${how} after ${whole(step)} steps. Its answers are below.`);
  }

  #halt(how: "paused" | "done"): void {
    this.#halting = how;
    if (this.#state === "loading") {
      this.#work?.abort();
      return;
    }
    if (this.#state === "paused") {
      this.#work?.abort();
      this.#set("done");
      this.#say(`Stopped after ${whole(this.#tuning!.step)} steps.`);
      return;
    }
    this.#say(how === "paused" ? "Pausing after this step…" : "Stopping after this step…");
    this.#tuning?.halt();
  }

  /** Asks the prompts; nothing else can begin meanwhile. */
  async #asks(say: string, ...adapted: boolean[]): Promise<void> {
    this.#asking = true;
    this.#enable();
    this.#say(say);
    try {
      const { signal } = this.#works();
      for (const how of adapted) await this.#answers.ask(this.#tuning!, how, signal);
    } finally {
      this.#asking = false;
      this.#enable();
    }
  }

  async #askBoth(): Promise<void> {
    clearError(this.#error);
    this.#answers.clear();
    try {
      await this.#asks("Asking the model without its adapter, and with it…", false, true);
      this.#say("The answers are below.");
    } catch (error) {
      this.#fail(error);
    }
  }

  /**
   * Shows a prompt in the model's layers, on the stage. A model that is not loaded yet is.
   *
   * @param prompt - takes the stage over; without one what stands in its field is woven.
   */
  async #look(prompt?: string): Promise<void> {
    if (isDisabled(button("look"))) return;
    clearError(this.#error);
    try {
      if (!this.#tuning || this.#staysOut) {
        if (this.#host.busy()) return this.#sayReady();
        if (!(await this.#begin())) return;
        this.#set("ready");
      }
      if (prompt !== undefined) this.#stage.take(prompt);
      this.#asking = true;
      this.#enable();
      this.#say("Looking into its layers…");
      await this.#weave(this.#tuning!);
      this.#say("Its layers are on the loom.");
    } catch (error) {
      this.#fail(error);
    } finally {
      this.#asking = false;
      this.#enable();
    }
  }

  /** Whether another model is chosen than the one that is loaded, which has learned nothing that would be lost. */
  get #staysOut(): boolean {
    const { base } = this.#tuning!;
    const other = this.#state === "ready" && this.#reading?.base.name !== base.name;
    return other && this.#tuning!.step === this.#saved;
  }

  async #weave(tuning: Tuning): Promise<void> {
    const chat = this.#answers.chatOf(this.#stage.prompt || "?");
    await this.#stage.weave(tuning, chat, this.#works().signal);
  }

  /** Shows on the stage what the adapter has changed so far. What fails in that ends no training. */
  async #follow(tuning: Tuning, { step, loss }: StepMetrics): Promise<void> {
    if (!this.#stage.shown) return;
    const { steps } = tuning.settings;
    this.#stage.say(
      `Step ${whole(step)} of ${whole(steps)}: loss ${(loss ?? Number.NaN).toFixed(3)}.`,
    );
    if (!this.#stage.due(step, steps)) return;
    await this.#weave(tuning).catch((error: unknown) => {
      if (TinyloomError.from(error).code === "device-lost") throw error;
      this.#stage.say("It learns on, and is shown again later.");
    });
  }

  async #save(): Promise<void> {
    const tuning = this.#tuning!;
    try {
      const zip = await tuning.save();
      download(zip, `${tuning.base.name} adapter.zip`);
      this.#saved = tuning.step;
      this.#say("The zip has the adapter as PEFT reads it, and Adapter.load of tinyloom.");
    } catch (error) {
      this.#fail(error);
    }
  }

  /** There is no GPU any more. */
  #end(): void {
    this.#tuning = undefined;
    this.#stage.leave();
    this.#wait("The GPU is gone. Save what you want to keep, then reload the page.");
    byId("tune-choices", HTMLFieldSetElement).disabled = true;
  }
}
