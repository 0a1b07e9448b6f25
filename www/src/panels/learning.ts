import { byId, clock, make, showNumber } from "../dom.ts";
import type { Training, TrainingEvent } from "../training.ts";
import { type Curve, LossChart, OTHERS } from "./chart.ts";

/** The progress of a run: the cloth at the top, the figures, and the loss curve. */
export class LearningPanel {
  readonly #chart = new LossChart(byId("loss-chart", HTMLElement));
  #steps = 1;
  #tokensPerStep = 1;

  /** Clears the panel for a run. */
  start({ settings, step, entropy, ofBytes }: Training): void {
    this.#steps = settings.steps;
    this.#tokensPerStep = settings.tokensPerStep;
    const words = settings.config.vocab_size ?? 256;
    this.#chart.reset(settings.steps, { blind: Math.log(words), entropy });
    byId("blind-key", HTMLElement).textContent =
      `guessing blindly among ${words.toLocaleString("en")} ${ofBytes ? "bytes" : "tokens"}`;
    byId("entropy-key", HTMLElement).hidden = entropy === undefined;
    byId("loss-unit", HTMLElement).textContent = `nats per ${ofBytes ? "byte" : "token"}`;
    byId("speed-name", HTMLElement).textContent = `${ofBytes ? "Bytes" : "Tokens"} per second`;
    this.#showStep(step);
    for (const id of ["loss", "validation-loss", "tokens-per-second"]) showNumber(id, undefined);
    byId("time-left", HTMLElement).textContent = "–";
  }

  show(event: TrainingEvent): void {
    if (event.type === "validation") {
      showNumber("validation-loss", event.loss, event.loss.toFixed(3));
      this.#chart.addValidation(event.step, event.loss);
    } else if (event.type === "step") {
      const { step, loss, tokensPerSecond } = event;
      this.#showStep(step);
      showNumber("loss", loss, loss.toFixed(3));
      byId("ticker", HTMLElement).append(`, loss ${loss.toFixed(3)}`);
      this.#chart.addLoss(step, loss);
      if (tokensPerSecond !== undefined) this.#showSpeed(step, tokensPerSecond);
    }
  }

  /** Brings the panel into view where the form has pushed it out, as on a phone. */
  reveal(): void {
    const title = byId("learning-title", HTMLElement);
    if (title.getBoundingClientRect().top < innerHeight / 2) return;
    const { matches: still } = matchMedia("(prefers-reduced-motion: reduce)");
    title.scrollIntoView({ behavior: still ? "auto" : "smooth" });
  }

  /** Draws the curves of other runs behind the present one. */
  compare(others: readonly Curve[]): void {
    this.#chart.compare(others);
    const keys = others.map(({ name }, index) => {
      const key = make("span", "key", name);
      key.style.setProperty("--key", `var(--other-${index % OTHERS})`);
      return key;
    });
    byId("other-keys", HTMLElement).replaceChildren(...keys);
  }

  #showSpeed(step: number, tokensPerSecond: number): void {
    const speed = Math.round(tokensPerSecond).toLocaleString("en");
    showNumber("tokens-per-second", tokensPerSecond, speed);
    const left = ((this.#steps - step) * this.#tokensPerStep) / tokensPerSecond;
    byId("time-left", HTMLElement).textContent = clock(left);
  }

  #showStep(step: number): void {
    const percent = (100 * step) / this.#steps;
    byId("weave", HTMLElement).setAttribute("aria-valuenow", percent.toFixed(0));
    byId("weft", SVGRectElement).setAttribute("width", `${percent}%`);
    byId("ticker", HTMLElement).textContent = `Step ${step} of ${this.#steps}`;
    const shown = `${step.toLocaleString("en")} of ${this.#steps.toLocaleString("en")}`;
    showNumber("step", step, shown);
  }
}
