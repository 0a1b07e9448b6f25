/** A lesson on the page: hides the rest, asks, lets the pupil see, and only then tells. */

import shakespeare from "../../texts/shakespeare.txt?url";
import { byId, download, make } from "../dom.ts";
import { disable } from "../focus.ts";
import type { Stage } from "../loom/stage.ts";
import { nameOf, pictureOf } from "../share/picture.ts";
import { factsOf } from "./facts.ts";
import { type Facts, type Lesson, lessons, type Part } from "./lessons.ts";
import "./lesson.css";

/** What a lesson needs of the page. */
export interface Host {
  readonly stage: Stage;
  /** Whether there is a GPU to train on. */
  readonly trains: boolean;
  /** Trains a model of these values of the form's fields, on the pupil's text if that is wanted. It ends with the page. */
  train(values: { readonly [id: string]: string }, text: string): void;
}

/** Letters of the text that is offered, and of one that is long enough. */
const [OFFERED, LEAST] = [3000, 1300];
const NO_GPU =
  "This lesson trains a model, for which this browser offers no GPU. Look at it together with a neighbour whose browser does. Lessons 1 and 2 work here.";

class LessonPanel {
  readonly #section = byId("lesson", HTMLElement);
  readonly #host: Host;
  readonly #number: number;
  readonly #lesson: Lesson;
  readonly #words = make("p", "lesson-words");
  readonly #choices = make("div", "lesson-choices");
  readonly #next = make("button", "primary", "Next");
  readonly #waits = make("p", "hint");
  readonly #text = make("textarea", "");
  /** The page's title without a lesson. */
  readonly #title = document.title;
  #part = -1;
  #guess = "";

  constructor(number: number, host: Host) {
    this.#host = host;
    this.#number = number;
    this.#lesson = lessons[number - 1]!;
    const { title, minutes } = this.#lesson;
    const heading = make("h2", "", title);
    heading.id = "lesson-title";
    const leave = make("a", "", "Leave the lessons");
    leave.href = "./";
    this.#words.setAttribute("aria-live", "polite");
    this.#choices.setAttribute("role", "group");
    this.#choices.setAttribute("aria-label", "Your guess");
    this.#next.type = "button";
    this.#next.addEventListener("click", () => this.#go());
    this.#text.rows = 4;
    this.#text.spellcheck = false;
    this.#text.setAttribute("aria-label", "The text that it learns by heart");
    const head = make(
      "div",
      "lesson-head",
      make("p", "lesson-of", `Lesson ${number} of ${lessons.length}, ${minutes} minutes`),
      heading,
      leave,
    );
    const body = make("div", "lesson-body", this.#words, this.#choices, this.#text);
    body.append(make("div", "lesson-next", this.#next, this.#waits));
    this.#section.replaceChildren(head, body);
    this.#section.hidden = false;
    document.body.dataset["lesson"] = String(number);
    document.title = `${title}, tinyloom`;
  }

  open(): void {
    const { stage, trains } = this.#host;
    stage.onChange = () => this.#refresh();
    const { at, word, run } = this.#lesson;
    stage.cut([]);
    if (word !== undefined) stage.weaveText(word);
    if (at !== undefined) stage.showRecording(at);
    // The recording is enough to watch one.
    if (run && !trains && this.#number !== 1) {
      this.#words.textContent = NO_GPU;
      this.#choices.replaceChildren();
      this.#text.hidden = true;
      this.#next.hidden = true;
      return;
    }
    this.#go();
  }

  /** Ends it: the page is as it was before. */
  close(): void {
    this.#host.stage.onChange = () => undefined;
    this.#section.replaceChildren();
    this.#section.hidden = true;
    for (const name of ["lesson", "lessonPart", "lessonField"]) delete document.body.dataset[name];
    document.title = this.#title;
  }

  #go(): void {
    this.#part++;
    const part = this.#lesson.parts[this.#part]!;
    const { run } = this.#lesson;
    if (part.begins && run && this.#host.trains) this.#host.train(run, this.#text.value);
    document.body.dataset["lessonPart"] = String(this.#part);
    document.body.dataset["lessonField"] = String(part.field ?? false);
    this.#text.hidden = !part.text;
    if (part.text) this.#offerText();
    this.#choices.replaceChildren(...(part.answers ?? []).map((answer) => this.#choice(answer)));
    this.#next.hidden = part.answers !== undefined;
    const last = this.#part === this.#lesson.parts.length - 1;
    if (last) this.#end();
    // A pupil with a screen reader or keyboard goes on where the lesson does.
    this.#next.disabled = false;
    if (this.#part > 0) (this.#choices.querySelector("button") ?? this.#next).focus();
    this.#refresh();
  }

  /** An answer is a guess: it is only noted. */
  #choice(answer: string): HTMLElement {
    const button = make("button", "", answer);
    button.type = "button";
    button.addEventListener("click", () => {
      this.#guess = answer;
      this.#go();
    });
    return button;
  }

  #offerText(): void {
    if (this.#text.value !== "") return;
    fetch(shakespeare)
      .then((response) => (response.ok ? response.text() : ""))
      .then((text) => {
        if (this.#text.value === "") this.#text.value = text.slice(0, OFFERED);
        this.#refresh();
      })
      .catch(() => undefined);
    this.#text.addEventListener("input", () => this.#refresh());
  }

  /** The last part: the picture, and the way to the next lesson. */
  #end(): void {
    const save = make("button", "primary", "Save my picture");
    save.type = "button";
    save.id = "lesson-picture";
    save.addEventListener("click", () => void this.#save());
    this.#choices.replaceChildren(save);
    this.#next.hidden = true;
    const next = this.#number < lessons.length ? this.#number + 1 : undefined;
    const link = make(
      "a",
      "lesson-on",
      next ? `Lesson ${next}: ${lessons[next - 1]!.title}` : "All lessons",
    );
    link.href = next ? `#lesson=${next}` : "lessons.html";
    this.#choices.append(link);
  }

  async #save(): Promise<void> {
    const { moment } = this.#host.stage;
    if (!moment) return;
    const picture = await pictureOf(moment);
    download(picture, `lesson ${this.#number} ${nameOf(moment)}.png`);
    this.#waits.textContent = "The picture is in your downloads.";
  }

  /** What is shown has changed. */
  #refresh(): void {
    const part = this.#lesson.parts[this.#part];
    if (!part) return;
    const facts = factsOf(this.#host.stage.moment, this.#host.trains);
    const says = part.says(facts, this.#guess);
    if (this.#words.textContent !== says) this.#words.textContent = says;
    const waits = this.#waiting(part, facts);
    disable(this.#next, waits !== "");
    if (!part.picture) this.#waits.textContent = waits;
  }

  #waiting({ until, text }: Part, facts: Facts): string {
    if (text && this.#text.value.length < LEAST) {
      return `It has ${this.#text.value.length} letters; at least ${LEAST} are needed.`;
    }
    return until && !until.is(facts) ? until.waits : "";
  }
}

let open: LessonPanel | undefined;

/** Opens a lesson by its number; says whether there is one. */
export function openLesson(number: number, host: Host): boolean {
  if (!lessons[number - 1]) return false;
  closeLesson();
  open = new LessonPanel(number, host);
  open.open();
  return true;
}

/** Ends the lesson that is open, if one is. */
export function closeLesson(): void {
  open?.close();
  open = undefined;
}
