import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

/** Weight of the newest step in the smoothed training curve. */
const SMOOTHING = 0.25;

/** How many colours there are for the curves of other runs. */
export const OTHERS = 4;

/** The losses of another run. */
export interface Curve {
  name: string;
  steps: readonly number[];
  losses: readonly number[];
}

/** Follows the losses without their noise. */
class Smoothing {
  #value: number | undefined;

  next(loss: number): number {
    const before = this.#value ?? loss;
    this.#value = before + SMOOTHING * (loss - before);
    return this.#value;
  }
}

/** Losses that a model is held to, in nats per token. */
export interface Bounds {
  /** Of equal chances for each token: the logarithm of the vocabulary. */
  blind: number;
  /** The lowest that any model can reach, where it is known. */
  entropy: number | undefined;
}

/** The loss curve: training loss as it is and smoothed, validation loss, and the two bounds around them. */
export class LossChart {
  readonly #host: HTMLElement;
  #plot: uPlot | undefined;
  #bounds: Bounds | undefined;
  #end = 100;
  #scheduled = false;
  #steps: number[] = [];
  #training: number[] = [];
  #smoothed: number[] = [];
  #validation: (number | null)[] = [];
  #smoothing = new Smoothing();
  /** Of each other run its steps and smoothed losses. */
  #others: [number[], number[]][] = [];

  constructor(host: HTMLElement) {
    this.#host = host;
    new ResizeObserver(() => {
      this.#plot?.setSize({ width: host.clientWidth, height: host.clientHeight });
    }).observe(host);
    // uPlot paints with the colours it was made with.
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#build());
    this.#build();
  }

  /** Clears the curves for a run that ends at step `end`. */
  reset(end: number, bounds: Bounds): void {
    this.#end = end;
    this.#bounds = bounds;
    this.#steps = [];
    this.#training = [];
    this.#smoothed = [];
    this.#validation = [];
    this.#smoothing = new Smoothing();
    this.#build();
  }

  /** Draws other runs behind this one. */
  compare(curves: readonly Curve[]): void {
    this.#others = curves.map(({ steps, losses }) => {
      const smoothing = new Smoothing();
      return [[...steps], losses.map((loss) => smoothing.next(loss))];
    });
    this.#build();
  }

  addLoss(step: number, loss: number): void {
    if (!Number.isFinite(loss)) return;
    this.#steps.push(step);
    this.#training.push(loss);
    this.#smoothed.push(this.#smoothing.next(loss));
    this.#validation.push(null);
    this.#schedule();
  }

  addValidation(step: number, loss: number): void {
    const index = this.#steps.lastIndexOf(step);
    if (index >= 0) this.#validation[index] = loss;
    this.#schedule();
  }

  /** One repaint a frame, however many steps arrive. */
  #schedule(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    requestAnimationFrame(() => {
      this.#scheduled = false;
      this.#plot?.setData(this.#data());
      const loss = this.#smoothed.at(-1);
      if (loss !== undefined) {
        const label = `Loss by step: ${loss.toFixed(2)} at step ${this.#steps.at(-1)}, ${this.#training[0]!.toFixed(2)} at the start`;
        this.#host.setAttribute("aria-label", label);
      }
    });
  }

  #data(): uPlot.AlignedData {
    // Points without a loss let the bounds' lines span the whole run. No step may be there twice.
    const ahead = this.#end > (this.#steps.at(-1) ?? 0) ? [this.#end] : [];
    const curve = (values: readonly (number | null)[]) => [
      null,
      ...values,
      ...ahead.map(() => null),
    ];
    const steps = [0, ...this.#steps, ...ahead];
    const line = (value: number | undefined) => steps.map(() => value ?? null);
    const losses = [this.#training, this.#smoothed, this.#validation].map(curve);
    const { blind, entropy } = this.#bounds ?? {};
    const own = [steps, ...losses, line(blind), line(entropy)] as uPlot.AlignedData;
    return this.#others.length === 0 ? own : uPlot.join([...this.#others, own]);
  }

  #build(): void {
    this.#plot?.destroy();
    const style = getComputedStyle(this.#host);
    const color = (name: string): string => style.getPropertyValue(`--${name}`).trim();
    const axis = {
      stroke: color("muted"),
      grid: { stroke: color("line"), width: 1 },
      ticks: { stroke: color("line"), width: 1, size: 4 },
      font: "12px system-ui, sans-serif",
    };
    const others = this.#others.map((_, index) => ({
      stroke: color(`other-${index % OTHERS}`),
      width: 1.5,
      points: { show: false },
    }));
    const lines: uPlot.Series[] = [
      ...others,
      { stroke: color("madder-faint"), width: 1, points: { show: false } },
      { stroke: color("madder"), width: 2, points: { show: false } },
      {
        stroke: color("indigo"),
        width: 2,
        spanGaps: true,
        points: { show: true, size: 5, fill: color("indigo") },
      },
      { stroke: color("muted"), width: 1.5, dash: [2, 4], points: { show: false } },
      { stroke: color("weld"), width: 1.5, dash: [6, 4], points: { show: false } },
    ];
    this.#plot = new uPlot(
      {
        width: Math.max(this.#host.clientWidth, 200),
        height: this.#host.clientHeight,
        cursor: { show: false },
        legend: { show: false },
        scales: {
          x: { time: false, range: () => [0, this.#end] },
          y: { range: (_plot, _low, high) => [0, (high ?? 6) * 1.05] },
        },
        axes: [
          { ...axis, size: 32 },
          { ...axis, size: 40 },
        ],
        series: [{}, ...lines],
      },
      this.#data(),
      this.#host,
    );
  }
}
