import { byId, clock, duration, make, showNumber, whole } from "../dom.ts";
import type { ScoreKind } from "../exam.ts";
import type { Curve } from "../run-store.ts";
import type { TrainingEvent } from "../training.ts";
import { LossChart, OTHERS, type Quantity } from "./chart.ts";
import { ScorePanel } from "./score.ts";

/** What the other quantities of the chart are. */
const WHY: { readonly [quantity in Quantity]: string } = {
  loss: "",
  gradNorm:
    "How strongly the step's letters ask for other weights: the length of the gradient over all weights. A leap tells of a step that fits nothing the model has learned so far.",
  learningRate:
    "How far a step moves the weights. It rises over the first steps, while the model knows nothing, and falls slowly after them, so that the last steps only polish.",
};

/** What the panel has to know of a run. */
export interface Learner {
  /** What it learns, said after "Learning". */
  readonly subject: string;
  readonly settings: { readonly steps: number; readonly tokensPerStep: number };
  /** Steps done. */
  readonly step: number;
  /** The lowest loss that is possible, where it is known. */
  readonly entropy: number | undefined;
  /** The loss of guessing by how often each letter occurs, where letters are the tokens. */
  readonly letters: number | undefined;
  /** Whether bytes are the tokens. */
  readonly ofBytes: boolean;
  /** The vocabulary. */
  readonly words: number;
  /** What its score counts. */
  readonly scores: ScoreKind;
}

/** Hides one button and shows another. The focus moves with it. */
function offer(shown: HTMLButtonElement, other: HTMLButtonElement): void {
  const focused = document.activeElement === other;
  shown.hidden = false;
  other.hidden = true;
  if (focused) shown.focus();
}

/** The progress of a run: the cloth at the top, the figures, and the loss curve. */
export class LearningPanel {
  readonly #chart = new LossChart(byId("loss-chart", HTMLElement), {
    values: (text) => {
      byId("chart-values", HTMLElement).textContent = text;
    },
    zoomed: (zoomed) => {
      const [zoomIn, zoomOut] = ["zoom-in", "zoom-out"].map((id) => byId(id, HTMLButtonElement));
      offer(zoomed ? zoomOut! : zoomIn!, zoomed ? zoomIn! : zoomOut!);
    },
  });
  readonly #score = new ScorePanel();
  #steps = 1;
  readonly #logarithmic = byId("logarithmic", HTMLInputElement);
  #tokensPerStep = 1;
  #entropy: number | undefined;

  constructor() {
    const quantity = byId("quantity", HTMLSelectElement);
    const logarithmic = this.#logarithmic;
    const choose = () => {
      this.#chart.choose(quantity.value as Quantity, logarithmic.checked);
      const why = WHY[quantity.value as Quantity];
      this.#showFloor();
      byId("loss-keys", HTMLElement).hidden = why !== "";
      byId("quantity-why", HTMLElement).hidden = why === "";
      byId("quantity-why", HTMLElement).textContent = why;
    };
    quantity.addEventListener("change", choose);
    logarithmic.addEventListener("change", choose);
    choose(); // a reload may have kept another choice
    const zoom = (id: string, how: () => void) =>
      byId(id, HTMLButtonElement).addEventListener("click", how);
    zoom("zoom-in", () => this.#chart.zoom("newest"));
    zoom("zoom-out", () => this.#chart.zoom(undefined));
  }

  /** The lowest loss has a key where it is drawn: a logarithmic axis has no 0. */
  #showFloor(): void {
    const drawn =
      this.#entropy !== undefined && !(this.#logarithmic.checked && this.#entropy === 0);
    byId("entropy-key", HTMLElement).hidden = !drawn;
  }

  /** Names what a run would be measured by. */
  preview(scores: ScoreKind): void {
    this.#score.start(scores, "letters");
  }

  /** Clears the panel for a run. */
  start({ subject, settings, step, entropy, letters, ofBytes, words, scores }: Learner): void {
    byId("learning-title", HTMLElement).textContent = `Learning ${subject}`;
    this.#steps = settings.steps;
    this.#tokensPerStep = settings.tokensPerStep;
    const tokens = ofBytes ? "letters" : "tokens";
    this.#chart.reset(settings.steps, { blind: Math.log(words), letters, entropy });
    this.#score.start(scores, tokens);
    byId("blind-key", HTMLElement).textContent =
      `blind guess among ${whole(words)} ${tokens}: ${Math.log(words).toFixed(2)}`;
    const frequencies = byId("letters-key", HTMLElement);
    frequencies.hidden = letters === undefined;
    frequencies.textContent = `knowing how often each letter occurs: ${letters?.toFixed(2)}`;
    this.#entropy = entropy;
    this.#showFloor();
    byId("entropy-key", HTMLElement).textContent =
      entropy === 0
        ? "floor: 0, each problem has one right answer"
        : `floor: ${entropy?.toFixed(2)}, the chance in the grammar itself`;
    byId("loss-unit", HTMLElement).textContent = `nats per ${ofBytes ? "letter" : "token"}`;
    byId("speed-name", HTMLElement).textContent = `${ofBytes ? "Letters" : "Tokens"} per second`;
    this.#showStep(step);
    for (const id of ["loss", "validation-loss", "tokens-per-second"]) showNumber(id, undefined);
    byId("time-left", HTMLElement).textContent = "–";
  }

  show(event: TrainingEvent): void {
    if (event.type === "score") {
      this.#score.show(event.score);
    } else if (event.type === "validation") {
      showNumber("validation-loss", event.loss, event.loss.toFixed(3));
      this.#chart.addValidation(event.step, event.loss);
    } else if (event.type === "step") {
      const { step, loss, gradNorm, learningRate, tokensPerSecond } = event;
      this.#showStep(step);
      showNumber("loss", loss, loss.toFixed(3));
      byId("ticker", HTMLElement).append(`, loss ${loss.toFixed(3)}${this.#score.line}`);
      this.#chart.add({ step, loss, gradNorm, learningRate });
      if (tokensPerSecond !== undefined) this.#showSpeed(step, tokensPerSecond);
    }
  }

  /** The percentage, as it is shown. */
  get score(): string {
    return this.#score.percent;
  }

  /** The run trains no more. */
  end(): void {
    byId("time-left", HTMLElement).textContent = "–";
  }

  /** Brings the panel into view where the form has pushed it out, as on a phone. */
  reveal(): void {
    const title = byId("learning-title", HTMLElement);
    const { top } = title.getBoundingClientRect();
    if (top >= 0 && top < innerHeight / 2) return;
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
    const speed = whole(tokensPerSecond);
    showNumber("tokens-per-second", tokensPerSecond, speed);
    const left = ((this.#steps - step) * this.#tokensPerStep) / tokensPerSecond;
    byId("time-left", HTMLElement).textContent = left < 3600 ? clock(left) : duration(left);
  }

  #showStep(step: number): void {
    const percent = (100 * step) / this.#steps;
    byId("weave", HTMLElement).setAttribute("aria-valuenow", percent.toFixed(0));
    byId("weft", SVGRectElement).setAttribute("width", `${percent}%`);
    const shown = `${whole(step)} of ${whole(this.#steps)}`;
    byId("ticker", HTMLElement).textContent = `Step ${shown}`;
    showNumber("step", step, shown);
  }
}
