/** The figures and the curve of an adapter in training. */
import { byId, clock, duration, showNumber, whole } from "../dom.ts";
import { Speed } from "../speed.ts";
import type { TuneEvent, Tuning } from "../tune/tuning.ts";
import { LossChart } from "./chart.ts";

export class TuneLearning {
  readonly #chart = new LossChart(byId("tune-chart", HTMLElement), {
    values: (text) => {
      byId("tune-values", HTMLElement).textContent = text;
    },
    zoomed: (zoomed) => {
      byId("tune-zoom-out", HTMLButtonElement).hidden = !zoomed;
    },
  });
  #speed = new Speed();
  #tuning: Tuning | undefined;

  constructor() {
    byId("tune-zoom-out", HTMLButtonElement).addEventListener("click", () => {
      this.#chart.zoom(undefined);
      byId("tune-chart", HTMLElement).focus();
    });
  }

  start(tuning: Tuning): void {
    this.#tuning = tuning;
    this.#speed = new Speed();
    byId("tune-learning", HTMLElement).hidden = false;
    this.#chart.reset(tuning.settings.steps);
    this.#chart.choose("loss", false);
    for (const id of ["loss", "validation", "speed"]) showNumber(`tune-${id}`, undefined);
    this.#showStep(0);
    this.end();
  }

  show(event: TuneEvent): void {
    if (event.type === "validation") {
      showNumber("tune-validation", event.loss, event.loss.toFixed(3));
      this.#chart.addValidation(event.step, event.loss);
      return;
    }
    const { step, loss, gradNorm, learningRate } = event.metrics;
    this.#showStep(step);
    this.#chart.add({ step, loss: loss ?? Number.NaN, gradNorm, learningRate });
    showNumber("tune-loss", loss ?? undefined, loss?.toFixed(3));
    const speed = this.#speed.add(event.metrics);
    if (speed === undefined) return;
    showNumber("tune-speed", speed, whole(speed));
    const { steps } = this.#tuning!.settings;
    const left = (steps - step) * this.#speed.seconds;
    byId("tune-left", HTMLElement).textContent = left < 3600 ? clock(left) : duration(left);
  }

  /** It trains no more, or not now. */
  end(): void {
    byId("tune-left", HTMLElement).textContent = "–";
  }

  #showStep(step: number): void {
    showNumber("tune-step", step, `${whole(step)} of ${whole(this.#tuning!.settings.steps)}`);
  }
}
