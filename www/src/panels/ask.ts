import { TinyloomError } from "tinyloom/worker";
import { storyPrompt } from "../../stories/preset.ts";
import { byId, make } from "../dom.ts";
import { shownMark } from "../tasks/answers.ts";
import { tasks } from "../tasks/index.ts";
import type { Task } from "../tasks/task.ts";
import type { Training } from "../training.ts";
import { showError } from "./status.ts";
import { readTokens, tokenElement } from "./tokens.ts";

/** A visitor's problem without the mark that the answer follows. */
function problemOf({ mark }: Task, asked: string): string {
  const problem = asked.trim();
  return problem.endsWith(mark) ? problem.slice(0, -mark.length) : problem;
}

/** Whether an answer is right; of what is no problem of the task, that it is none. */
function verdict(task: Task, problem: string, given: string): HTMLElement {
  const wanted = task.solve(problem);
  if (wanted === undefined) return make("span", "wrong", ` It has learned only: ${task.asks}.`);
  const right = given === wanted;
  const tick = make("span", "tick", right ? "✓" : "✗");
  return make(
    "span",
    right ? "right" : "wrong",
    "\u00a0",
    tick,
    right ? "" : ` right is ${wanted}`,
  );
}

/** The panel that continues a prompt with the model of the current run. */
export class AskPanel {
  readonly #form = byId("ask", HTMLFormElement);
  readonly #button = byId("generate", HTMLButtonElement);
  readonly #prompt = byId("prompt", HTMLTextAreaElement);
  readonly #output = byId("output", HTMLElement);
  readonly #step = byId("output-step", HTMLElement);
  /** What the page has put into the field by itself. */
  #suggested = "";
  #training: Training | undefined;
  /** The task whose problems the model learns. */
  #task: Task | undefined;
  /** Ends the text that is being written. */
  #writing: AbortController | undefined;

  constructor() {
    readTokens(this.#output, byId("output-alternatives", HTMLElement));
    this.#form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.#writing) this.#writing.abort();
      else void this.#write();
    });
    // A problem is one line.
    this.#prompt.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || !this.#task) return;
      event.preventDefault();
      if (!this.#button.disabled) this.#form.requestSubmit();
    });
  }

  /** The model that writes from now on. */
  start(training: Training): void {
    this.#writing?.abort();
    this.#training = training;
    this.#output.textContent = "";
    this.#output.hidden = true;
    this.#step.hidden = true;
    const task = training.task && tasks[training.task];
    this.#task = task;
    byId("prompt-title", HTMLElement).textContent = task ? "Ask it yourself" : "Let it write";
    byId("ask-name", HTMLElement).textContent = task?.asks ?? "How the text begins";
    this.#prompt.rows = task ? 1 : 2;
    this.#label();
    // An answer is the likeliest one, and ends by itself.
    byId("ask-how", HTMLElement).hidden = Boolean(task);
    const { value } = this.#prompt;
    if (value.trim() !== "" && value !== this.#suggested) return;
    const story = training.text.judge ? storyPrompt.split(" ", 4).join(" ") : "";
    this.#suggested = task ? task.shown.at(-1)! : story;
    this.#prompt.value = this.#suggested;
  }

  set disabled(value: boolean) {
    this.#button.disabled = value;
  }

  #label(): void {
    const idle = this.#task ? "Ask" : "Write";
    this.#button.textContent = this.#writing ? "Stop writing" : idle;
  }

  async #write(): Promise<void> {
    const training = this.#training;
    if (!training) return;
    const task = this.#task;
    const asked = this.#prompt.value;
    const problem = task && problemOf(task, asked);
    const prompt = task ? problem + task.mark : asked;
    const written = make("span", "");
    const shown = task ? problem + shownMark(task) : prompt;
    this.#output.replaceChildren(make("b", "", shown), written);
    this.#output.hidden = false;
    this.#step.hidden = false;
    this.#step.textContent = `Written by the model of step ${training.step} of “${training.run.name}”:`;
    this.#writing = new AbortController();
    this.#label();
    this.#output.setAttribute("aria-busy", "true");
    try {
      for await (const token of training.write(prompt, this.#options(this.#writing.signal))) {
        written.append(tokenElement(token));
      }
      const given = written.textContent;
      if (task && written.textContent === "") written.append("(nothing)");
      if (task) this.#output.append(verdict(task, problem!, given));
    } catch (error) {
      if (!(error instanceof TinyloomError && error.code === "aborted")) showError(error);
    } finally {
      this.#writing = undefined;
      this.#label();
      this.#output.setAttribute("aria-busy", "false");
    }
  }

  #options(signal: AbortSignal) {
    return {
      length: byId("max-tokens", HTMLInputElement).valueAsNumber,
      temperature: this.#task ? 0 : byId("temperature", HTMLInputElement).valueAsNumber,
      seed: Math.floor(Math.random() * 2 ** 32),
      signal,
    };
  }
}
