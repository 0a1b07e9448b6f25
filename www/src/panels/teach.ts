/** The panel that teaches by hand: thumbs on the model's own samples, or a rule that judges for the visitor. */
import { TinyloomError } from "tinyloom/worker";
import { byId, download } from "../dom.ts";
import { disable } from "../focus.ts";
import { type BlindSample, mixed, tallied } from "../teach/blind.ts";
import { Pupil } from "../teach/pupil.ts";
import { RULES, ruleOf } from "../teach/rules.ts";
import { shareOf, type TeachStep, type Written } from "../teach/teaching.ts";
import type { TuneHost } from "../tune/host.ts";
import { clearError, showErrorIn } from "./status.ts";
import { SHOWN, showChange, thumbs } from "./teach-samples.ts";

/** What the panel does at the moment. */
type TeachState = "waiting" | "ready" | "writing" | "teaching" | "comparing" | "saving";

/** Marks of each kind without which nothing can be learned. */
const LEAST = 2;

const button = (id: string) => byId(`teach-${id}`, HTMLButtonElement);

export class TeachPanel {
  readonly #host: TuneHost;
  readonly #section = byId("teach-panel", HTMLElement);
  readonly #error = byId("teach-error", HTMLElement);
  readonly #list = byId("teach-samples", HTMLOListElement);
  readonly #way = byId("teach-way", HTMLSelectElement);
  #state: TeachState = "waiting";
  #pupil: Pupil | undefined;
  /** Ends what is being done. */
  #work: AbortController | undefined;
  /** The step at which the adapter was downloaded last. */
  #saved = 0;
  /** What is compared blind, with the visitor's marks. */
  #blind: readonly BlindSample[] = [];
  /** Comparisons so far: each is of other samples. */
  #compared = 0;
  readonly #blindMarks = new Map<Written, boolean>();

  constructor(host: TuneHost) {
    this.#host = host;
    this.#way.append(...RULES.map(({ name, label }) => new Option(`A rule: ${label}`, name)));
    this.#way.addEventListener("change", () => this.#marked());
    button("write").addEventListener("click", () => void this.#do("writing", () => this.#write()));
    button("start").addEventListener("click", () => void this.#do("teaching", () => this.#teach()));
    button("blind").addEventListener("click", () => void this.#do("comparing", () => this.#ask()));
    button("stop").addEventListener("click", () => this.#work?.abort());
    button("save").addEventListener("click", () => void this.#do("saving", () => this.#save()));
    button("forget").addEventListener("click", () => void this.#forget("It is as it was."));
  }

  /** The page's run, or its GPU, is another one now. */
  changed(): void {
    const pupil = this.#pupil;
    const other = pupil && this.#host.training() !== pupil.training;
    const gone = pupil && (!this.#host.opened() || other || (pupil.stale && !pupil.begun));
    if (this.#busy) {
      // What it works on is gone, or no longer what the page shows.
      if (gone) this.#work?.abort();
      return;
    }
    if (gone) void this.#forget("");
    this.#set(this.#waits() === undefined ? "ready" : "waiting");
  }

  /** Whether leaving the page loses what was taught. */
  get leavingLoses(): boolean {
    return this.#state === "teaching" || (this.#pupil?.teaching.step ?? 0) > this.#saved;
  }

  get #busy(): boolean {
    return !["waiting", "ready"].includes(this.#state);
  }

  /** Why nothing can be taught now. */
  #waits(): string | undefined {
    if (!this.#host.opened()) return "It needs a GPU.";
    const training = this.#host.training();
    if (!training) return "There is no model yet.";
    if (training.task) {
      return "This model learns problems with a right answer. Choose stories or a text of your own above, and let it train first.";
    }
    if (this.#host.busy()) return "The page trains. Pause it, or wait until it is done.";
    if (training.step === 0) return "The model has learned nothing yet: train it first.";
    return undefined;
  }

  #say(text: string): void {
    byId("teach-status", HTMLElement).textContent = text;
  }

  #set(state: TeachState): void {
    this.#state = state;
    this.#section.dataset["state"] = state;
    if (state === "waiting") this.#say(this.#waits() ?? "");
    else if (state === "ready") this.#say(this.#next());
    this.#enable();
  }

  /** What a visitor can do next. */
  #next(): string {
    if (this.#way.value !== "thumbs") {
      return "The model writes by itself, the rule says what is good, and what is good becomes likelier.";
    }
    const [good, bad] = this.#counts();
    const pupil = this.#pupil;
    if (!pupil || pupil.samples.length === 0) return "First let it write.";
    const of = pupil.stale
      ? ` This is the model of step ${pupil.step}; forget it to teach the newer one.`
      : "";
    const marks = `${good} good, ${bad} bad.${of}`;
    if (good >= LEAST && bad >= LEAST)
      return `${marks} Teach it, or mark more: 20 do much better than 4.`;
    return `${marks} Mark at least ${LEAST} of each kind.`;
  }

  #counts(): [good: number, bad: number] {
    const marks = this.#pupil?.marks ?? [];
    const good = marks.filter((mark) => mark.good).length;
    return [good, marks.length - good];
  }

  /** A thumb, or who judges, is another one. While something is being done that changes nothing yet. */
  #marked(): void {
    if (this.#state === "ready") this.#set("ready");
    else this.#enable();
  }

  #enable(): void {
    const byHand = this.#way.value === "thumbs";
    const ready = this.#state === "ready";
    const [good, bad] = this.#counts();
    const taught = (this.#pupil?.teaching.step ?? 0) > 0;
    this.#way.disabled = this.#busy;
    for (const thumb of this.#section.querySelectorAll<HTMLButtonElement>(".thumb")) {
      thumb.disabled = this.#busy;
    }
    button("write").hidden = !byHand;
    disable(button("write"), !ready || this.#pupil?.full === true);
    button("write").textContent = this.#pupil?.samples.length ? "Write more" : "Let it write";
    disable(button("start"), !ready || (byHand && (good < LEAST || bad < LEAST)));
    disable(button("stop"), !this.#busy || this.#state === "saving");
    disable(button("blind"), !ready || !taught);
    disable(button("save"), !ready || !taught);
    disable(button("forget"), !ready || !this.#pupil);
  }

  /** Does one thing at a time. What fails is said, and the panel is as before. */
  async #do(state: TeachState, work: () => Promise<string | undefined>): Promise<void> {
    if (this.#busy) return;
    clearError(this.#error);
    this.#work = new AbortController();
    this.#set(state);
    let said: string | undefined;
    try {
      said = await work();
    } catch (error) {
      if (TinyloomError.from(error).code === "aborted") said = "Stopped.";
      else if (this.#host.opened()) showErrorIn(this.#error, error);
    }
    this.#state = "ready";
    this.changed();
    if (said !== undefined && this.#state === "ready") this.#say(said);
  }

  get #signal(): AbortSignal {
    return this.#work!.signal;
  }

  /** The model of the page's run, as a pupil. */
  async #taken(): Promise<Pupil> {
    if (this.#pupil) return this.#pupil;
    this.#say("Loading a copy of the model…");
    this.#pupil = await Pupil.of(this.#host.opened()!, this.#host.training()!, this.#signal);
    return this.#pupil;
  }

  async #write(): Promise<undefined> {
    const pupil = await this.#taken();
    this.#say("It writes…");
    for (const sample of await pupil.more(this.#signal)) {
      const item = thumbs(sample, pupil.samples.indexOf(sample) + 1, (good) => {
        pupil.mark(sample, good);
        this.#marked();
      });
      this.#list.append(item);
    }
  }

  async #teach(): Promise<string> {
    const pupil = await this.#taken();
    const rule = this.#way.value === "thumbs" ? undefined : ruleOf(this.#way.value);
    const signal = this.#signal;
    const steps = rule
      ? pupil.teaching.reward(rule, pupil.toMark, signal)
      : pupil.teaching.learn(pupil.marks, signal);
    for await (const step of steps) this.#show(step);
    this.#say("It continues beginnings that nobody has marked…");
    const { before, after } = await pupil.both(signal);
    showChange(before, after, pupil.rules, rule);
    if (!rule) {
      return "Taught. Below is what has changed. Compare blind to see whether you like it better.";
    }
    const [from, to] = [before, after].map((one) => Math.round(100 * shareOf(one, rule)));
    return `“${rule.label}” held for ${from} % of what it wrote, and holds for ${to} % now.`;
  }

  #show({ step, steps, wanted }: TeachStep): void {
    const share =
      wanted === undefined ? "" : `, ${Math.round(100 * wanted)} % of its samples wanted`;
    this.#say(`Step ${step} of ${steps}${share}.`);
  }

  /** Samples from before and after teaching in one list; the visitor does not know which is which. */
  async #ask(): Promise<string> {
    const pupil = await this.#taken();
    this.#say("It writes…");
    const { before, after } = await pupil.both(this.#signal);
    this.#blind = mixed(before.slice(SHOWN), after.slice(SHOWN), ++this.#compared);
    this.#blindMarks.clear();
    const items = this.#blind.map(({ sample }, at) =>
      thumbs(sample, at + 1, (good) => {
        if (good === undefined) this.#blindMarks.delete(sample);
        else this.#blindMarks.set(sample, good);
        this.#tell();
      }),
    );
    byId("teach-blind-samples", HTMLOListElement).replaceChildren(...items);
    byId("teach-blind-part", HTMLElement).hidden = false;
    this.#tell();
    return "Mark each of the samples below. Half of them are from before it was taught.";
  }

  /** Says how the blind comparison went, once all are marked. */
  #tell(): void {
    const left = this.#blind.length - this.#blindMarks.size;
    const { before, after, each } = tallied(
      this.#blind,
      ({ sample }) => this.#blindMarks.get(sample) === true,
    );
    byId("teach-blind-note", HTMLElement).textContent =
      left > 0
        ? `${left} are left to mark.`
        : `You liked ${before} of ${each} from before, and ${after} of ${each} from after.`;
  }

  async #save(): Promise<string> {
    const { teaching, training } = this.#pupil!;
    download(await teaching.save(), `${training.run.name} taught.zip`);
    this.#saved = teaching.step;
    return "The zip has the adapter as PEFT reads it, and Adapter.load of tinyloom.";
  }

  /** Drops what was taught, with all marks. */
  async #forget(say: string): Promise<void> {
    const pupil = this.#pupil;
    this.#pupil = undefined;
    this.#saved = 0;
    this.#blind = [];
    this.#list.replaceChildren();
    for (const id of ["teach-blind-part", "teach-change"]) byId(id, HTMLElement).hidden = true;
    // With the GPU everything on it is gone.
    if (this.#host.opened()) await pupil?.free().catch((error) => showErrorIn(this.#error, error));
    this.changed();
    if (say !== "") this.#say(say);
  }
}
