/** The stage, taken over by a model of the fine-tune panel: its layers over a chat, also while an adapter learns. */
import { byId, whole } from "../dom.ts";
import { disable, isDisabled } from "../focus.ts";
import { shapeOf } from "../shape.ts";
import type { Chat } from "../tune/chats.ts";
import type { Tuning } from "../tune/tuning.ts";
import { TuneLoom } from "./tune-loom.ts";

/** Looks that a training pauses for, spread over its steps; the first steps have more of them. */
const LOOKS = 20;

const button = (id: string) => byId(`real-${id}`, HTMLButtonElement);

/** What the panel does for it. */
export interface StageActions {
  /** Weaves the prompt anew. */
  weave(): void;
  train(): void;
  pause(): void;
}

export class TuneStage {
  readonly #stage = byId("loom", HTMLElement);
  readonly #part = byId("loom-real", HTMLElement);
  readonly #prompt = byId("real-prompt", HTMLInputElement);
  readonly #layers = byId("tune-loom-layers", HTMLSelectElement);
  readonly #adapted = byId("tune-loom-adapted", HTMLInputElement);
  readonly #loom = new TuneLoom();

  constructor(actions: StageActions) {
    byId("real-form", HTMLFormElement).addEventListener("submit", (event) => {
      event.preventDefault();
      actions.weave();
    });
    for (const choice of [this.#layers, this.#adapted]) {
      choice.addEventListener("change", () => actions.weave());
    }
    button("train").addEventListener("click", () => actions.train());
    button("pause").addEventListener("click", () => actions.pause());
    button("back").addEventListener("click", () => {
      this.leave();
      byId("loom-canvas", HTMLElement).focus({ preventScroll: true });
    });
    // Who chooses what a model learns here, or follows a link, wants to see that.
    byId("chips", HTMLElement).addEventListener("click", () => this.leave());
    addEventListener("hashchange", () => this.leave());
  }

  /** Whether it has the stage. */
  get shown(): boolean {
    return !this.#part.hidden;
  }

  get prompt(): string {
    return this.#prompt.value.trim();
  }

  /** Another model is loaded. */
  start(tuning: Tuning): void {
    this.#loom.start(shapeOf(tuning.base.config).layers ?? 1);
  }

  /** Takes the stage over, with a prompt. What stood there goes on behind it. */
  take(prompt: string): void {
    this.#prompt.value = prompt;
    if (this.shown) return;
    this.#turn(true);
    this.#stage.scrollIntoView({ block: "start" });
    this.#prompt.focus({ preventScroll: true });
  }

  /** Gives the stage back to the model that learns here. */
  leave(): void {
    if (this.shown) this.#turn(false);
  }

  #turn(real: boolean): void {
    this.#part.hidden = !real;
    this.#stage.classList.toggle("real", real);
    this.#stage.setAttribute("aria-labelledby", real ? "real-title" : "sentence");
  }

  say(text: string): void {
    if (this.shown) byId("real-status", HTMLElement).textContent = text;
  }

  /**
   * @param train - the panel's own button that begins, or goes on.
   * @param pause - that which halts.
   * @param looks - whether it can be looked into now.
   */
  enable(train: HTMLButtonElement, pause: HTMLButtonElement, looks: boolean): void {
    button("train").textContent = train.textContent;
    disable(button("train"), isDisabled(train));
    disable(button("pause"), isDisabled(pause));
    for (const one of [button("weave"), this.#layers, this.#adapted]) disable(one, !looks);
  }

  /** Weaves a chat in the model as it is now. */
  async weave(tuning: Tuning, chat: Chat, signal: AbortSignal): Promise<void> {
    const { step, base, weights } = tuning;
    const adapted = this.#adapted.checked && step > 0;
    const layers = await this.#loom.show(tuning, chat, adapted, signal);
    const all = shapeOf(base.config).layers ?? layers;
    byId("real-title", HTMLElement).textContent = `Inside ${base.name}`;
    const which = layers < all ? `${layers} of its ${all} layers` : `its ${all} layers`;
    const how = adapted
      ? `with an adapter that has learned for ${whole(step)} ${step === 1 ? "step" : "steps"}`
      : "as it came";
    byId("real-story", HTMLElement).textContent =
      `A model of ${whole(weights.base)} weights reads your chat, and goes on: ${which}, ${how}.`;
  }

  /** Whether a training of so many steps is looked at after this one. */
  due(step: number, steps: number): boolean {
    if (!this.shown) return false;
    return (
      (step < 16 && Number.isInteger(Math.log2(step))) || step % Math.ceil(steps / LOOKS) === 0
    );
  }
}
