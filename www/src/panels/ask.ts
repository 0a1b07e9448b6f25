import { TinyloomError } from "tinyloom/worker";
import { storyPrompt } from "../../stories/preset.ts";
import { byId, make } from "../dom.ts";
import { tasks } from "../tasks/index.ts";
import type { Training } from "../training.ts";
import { showError } from "./status.ts";
import { readTokens, tokenElement } from "./tokens.ts";

/** What is asked: a problem gets the mark behind which the answer comes. */
function promptFor({ task }: Training, text: string): string {
  if (!task) return text;
  const { mark } = tasks[task];
  return text.trim().endsWith(mark) ? text.trim() : text.trim() + mark;
}

/** The panel that continues a prompt with the model of the current run. */
export class AskPanel {
  readonly #button = byId("generate", HTMLButtonElement);
  readonly #prompt = byId("prompt", HTMLTextAreaElement);
  readonly #output = byId("output", HTMLElement);
  readonly #step = byId("output-step", HTMLElement);
  /** What the page has put into the field by itself. */
  #suggested = "";
  #training: Training | undefined;
  /** Ends the text that is being written. */
  #writing: AbortController | undefined;

  constructor() {
    readTokens(this.#output, byId("output-alternatives", HTMLElement));
    byId("ask", HTMLFormElement).addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.#writing) this.#writing.abort();
      else void this.#write();
    });
  }

  /** The model that writes from now on. */
  start(training: Training): void {
    this.#writing?.abort();
    this.#training = training;
    this.#output.textContent = "";
    this.#step.hidden = true;
    const task = training.task && tasks[training.task];
    byId("ask-name", HTMLElement).textContent = task ? "Your problem" : "How the text begins";
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

  async #write(): Promise<void> {
    const training = this.#training;
    if (!training) return;
    const prompt = promptFor(training, this.#prompt.value);
    const written = make("span", "");
    this.#output.replaceChildren(make("b", "", prompt), written);
    this.#step.hidden = false;
    this.#step.textContent = `Written by the model of step ${training.step} of “${training.run.name}”:`;
    this.#writing = new AbortController();
    this.#button.textContent = "Stop writing";
    this.#output.setAttribute("aria-busy", "true");
    try {
      const text = training.write(prompt, {
        length: byId("max-tokens", HTMLInputElement).valueAsNumber,
        temperature: training.task ? 0 : byId("temperature", HTMLInputElement).valueAsNumber,
        seed: Math.floor(Math.random() * 2 ** 32),
        signal: this.#writing.signal,
      });
      for await (const token of text) written.append(tokenElement(token));
    } catch (error) {
      if (!(error instanceof TinyloomError && error.code === "aborted")) showError(error);
    } finally {
      this.#writing = undefined;
      this.#button.textContent = "Generate";
      this.#output.setAttribute("aria-busy", "false");
    }
  }
}
