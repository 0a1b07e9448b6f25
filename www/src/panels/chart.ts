import type uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { meanAt, REACH } from "../mean.ts";
import type { Curve } from "../run-store.ts";

/** How many colours there are for the curves of other runs. */
export const OTHERS = 4;
/** The part of the steps that is shown as the newest. */
const NEWEST = 0.2;
/** Milliseconds after the first step in which the chart's library loads, unless it is wanted before. */
const LATER = 1000;
/** A selection of fewer pixels is a click. */
const CLICK = 4;

/** What the chart can show by step. */
export type Quantity = "loss" | "gradNorm" | "learningRate";

/** A step as the chart keeps it. Recordings have the loss alone. */
export interface Point {
  readonly step: number;
  readonly loss: number;
  readonly gradNorm?: number | undefined;
  readonly learningRate?: number | undefined;
}

/** Losses that a model is held to, in nats per token. */
export interface Bounds {
  /** Of equal chances for each token: the logarithm of the vocabulary. */
  blind: number;
  /** The lowest that any model can reach, where it is known. */
  entropy: number | undefined;
  /** Of guessing by how often each letter occurs, where letters are the tokens. */
  letters?: number | undefined;
}

/** The steps that are shown: the newest ones, those from one to another, or all. */
type View = "newest" | readonly [first: number, last: number] | undefined;

/** Callbacks of the chart. */
export interface ChartEvents {
  /** The values under the cursor; empty where there is none. */
  values(text: string): void;
  /** Whether a part of the steps is shown. */
  zoomed(zoomed: boolean): void;
}

let library: Promise<typeof uPlot> | undefined;

/** What draws the curves: a quarter of the page's code. The first step of the first visit does not share the network with it. */
function drawing(): Promise<typeof uPlot> {
  library ??= import("uplot").then(
    (module) => module.default,
    (error) => {
      library = undefined; // without a network; it is tried again when the chart is looked at
      throw error;
    },
  );
  return library;
}

const digits = (value: number): string => String(Number(value.toPrecision(3)));

/** A logarithm has no place for 0. */
const positive = (value: number | null): number | null => (value === 0 ? null : value);

/** The curves of a run by step: its losses with the two bounds around them, the gradient norm, the learning rate. */
export class LossChart {
  readonly #host: HTMLElement;
  readonly #events: ChartEvents;
  #library: typeof uPlot | undefined;
  #plot: uPlot | undefined;
  /** Whether the plot is about to be made anew. */
  #stale = false;
  #bounds: Bounds | undefined;
  #end = 100;
  #scheduled = false;
  #quantity: Quantity = "loss";
  #logarithmic = false;
  #view: View;
  #points: Point[] = [];
  #smoothed: number[] = [];
  #validation: (number | null)[] = [];
  /** Of each other run its steps and smoothed losses. */
  #others: [number[], number[]][] = [];

  constructor(host: HTMLElement, events: ChartEvents) {
    this.#host = host;
    this.#events = events;
    new ResizeObserver(() => {
      this.#plot?.setSize({ width: host.clientWidth, height: host.clientHeight });
    }).observe(host);
    new IntersectionObserver((seen) => {
      if (seen.some(({ isIntersecting: is }) => is)) void this.#load();
    }).observe(host);
    // uPlot paints with the colours it was made with.
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#renew());
    host.addEventListener("keydown", (event) => this.#key(event));
  }

  /** Loads what draws, unless it is there; says whether it is. */
  async #load(): Promise<boolean> {
    if (this.#library) return true;
    const loaded = await drawing().catch(() => undefined);
    if (loaded && !this.#library) {
      this.#library = loaded;
      this.#renew();
    }
    return loaded !== undefined;
  }

  /** Clears the curves for a run that ends at step `end`, whose losses may have bounds. */
  reset(end: number, bounds?: Bounds): void {
    this.#end = end;
    this.#bounds = bounds;
    this.#points = [];
    this.#smoothed = [];
    this.#validation = [];
    this.zoom(undefined);
  }

  /** Shows a quantity, with a logarithmic axis if that is wanted. Nothing is shown before. */
  choose(quantity: Quantity, logarithmic: boolean): void {
    this.#quantity = quantity;
    this.#logarithmic = logarithmic;
    this.#renew();
  }

  /** Shows a part of the steps; all where none is given. */
  zoom(view: View): void {
    this.#view = view;
    this.#events.zoomed(view !== undefined);
    this.#renew();
  }

  /** Draws other runs behind this one. */
  compare(curves: readonly Curve[]): void {
    this.#others = curves.map(({ steps, losses }) => [
      [...steps],
      losses.map((_, at) => meanAt(losses, at)),
    ]);
    this.#renew();
  }

  add(point: Point): void {
    if (!Number.isFinite(point.loss)) return;
    if (this.#points.length === 0) setTimeout(() => void this.#load(), LATER);
    this.#points.push(point);
    // The means of the last steps take the new one in.
    const last = this.#points.slice(-2 * REACH - 1).map(({ loss }) => loss);
    const first = this.#points.length - last.length;
    for (let at = Math.max(0, last.length - 1 - REACH); at < last.length; at++) {
      this.#smoothed[first + at] = meanAt(last, at);
    }
    this.#validation.push(null);
    this.#schedule();
  }

  addValidation(step: number, loss: number): void {
    const index = this.#points.findLastIndex((point) => point.step === step);
    if (index >= 0) this.#validation[index] = loss;
    this.#schedule();
  }

  /** One repaint a frame, however many steps arrive. */
  #schedule(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    requestAnimationFrame(() => {
      this.#scheduled = false;
      // A plot that is about to be made anew takes all data then; the old one may have other series.
      if (!this.#stale) this.#plot?.setData(this.#data());
      const last = this.#points.at(-1);
      const loss = this.#smoothed.at(-1);
      if (last && loss !== undefined) {
        const label = `Loss by step: ${loss.toFixed(2)} at step ${last.step}, ${this.#points[0]!.loss.toFixed(2)} at the start`;
        this.#host.setAttribute("aria-label", label);
      }
    });
  }

  /** What is drawn over the steps: values with their noise, without it, and points. */
  #curves(): readonly (readonly (number | null)[])[] {
    const quantity = this.#quantity;
    if (quantity === "loss") {
      return [this.#points.map(({ loss }) => loss), this.#smoothed, this.#validation];
    }
    const values = this.#points.map((point) => {
      const value = point[quantity];
      return value !== undefined && Number.isFinite(value) ? value : null;
    });
    const none = values.map(() => null);
    return [none, values, none];
  }

  #data(): uPlot.AlignedData {
    const ofLoss = this.#quantity === "loss";
    const cleaned = this.#logarithmic ? positive : (value: number | null) => value;
    // Points without a value let the bounds' lines span the whole run. No step may be there twice.
    const ahead = this.#end > (this.#points.at(-1)?.step ?? 0) ? [this.#end] : [];
    const curves = this.#curves().map((values) => [
      null,
      ...values.map(cleaned),
      ...ahead.map(() => null),
    ]);
    const steps = [0, ...this.#points.map(({ step }) => step), ...ahead];
    const line = (value: number | undefined) =>
      steps.map(() => (ofLoss ? cleaned(value ?? null) : null));
    const { blind, letters, entropy } = this.#bounds ?? {};
    const own = [steps, ...curves, line(blind), line(letters), line(entropy)] as uPlot.AlignedData;
    return this.#others.length === 0 || !ofLoss ? own : this.#library!.join([...this.#others, own]);
  }

  #range(): [number, number] {
    if (this.#view === undefined) return [0, this.#end];
    if (this.#view !== "newest") return [...this.#view];
    const last = this.#points.at(-1)?.step ?? this.#end;
    return [Math.floor(last * (1 - NEWEST)), last];
  }

  /**
   * Makes the plot anew once the page has been drawn, however often that is asked for. Before, the question for its
   * size and colours would lay out the whole page in the middle of other work: 40 of the 75 ms in which the page's
   * module was evaluated.
   */
  #renew(): void {
    if (this.#stale) return;
    this.#stale = true;
    requestAnimationFrame(() => setTimeout(() => this.#build()));
  }

  /** Makes the plot anew, unless that was done meanwhile. */
  #build(): void {
    if (!this.#stale) return;
    this.#stale = false;
    if (!this.#library) return;
    this.#plot?.destroy();
    this.#plot = new this.#library(this.#options(), this.#data(), this.#host);
  }

  #options(): uPlot.Options {
    const style = getComputedStyle(this.#host);
    const color = (name: string): string => style.getPropertyValue(`--${name}`).trim();
    const axis = {
      stroke: color("muted"),
      grid: { stroke: color("line"), width: 1 },
      ticks: { stroke: color("line"), width: 1, size: 4 },
      font: "12px system-ui, sans-serif",
    };
    return {
      width: Math.max(this.#host.clientWidth, 200),
      height: this.#host.clientHeight,
      cursor: { y: false, points: { show: false }, drag: { x: true, y: false, setScale: false } },
      hooks: {
        setCursor: [(plot) => this.#tell(plot)],
        setSelect: [(plot) => this.#selected(plot)],
      },
      legend: { show: false },
      scales: {
        x: { time: false, range: () => this.#range() },
        y: this.#logarithmic
          ? { distr: 3 }
          : { range: (_plot, _low, high) => [0, (high ?? 6) * 1.05] },
      },
      axes: [
        { ...axis, size: 32 },
        {
          ...axis,
          size: 48,
          // Of a logarithmic axis uPlot leaves some values out, which are null.
          values: (_plot, values) =>
            values.map((value: number | null) => (value === null ? "" : digits(value))),
        },
      ],
      series: [{}, ...this.#series(color)],
    };
  }

  #series(color: (name: string) => string): uPlot.Series[] {
    const points = { show: false };
    const shown = this.#quantity === "loss" ? this.#others : [];
    const others = shown.map((_, index) => ({
      stroke: color(`other-${index % OTHERS}`),
      width: 1.5,
      points,
    }));
    const indigo = color("indigo");
    return [
      ...others,
      { stroke: color("madder-faint"), width: 1, points },
      { stroke: color("madder"), width: 2, points },
      { stroke: indigo, width: 2, spanGaps: true, points: { show: true, size: 5, fill: indigo } },
      { stroke: color("muted"), width: 1.5, dash: [2, 4], points },
      { stroke: color("muted"), width: 1.5, dash: [8, 4], points },
      { stroke: color("weld"), width: 1.5, dash: [6, 4], points },
    ];
  }

  /** Zooms to what was drawn across. */
  #selected({ select: { left, width }, posToVal }: uPlot): void {
    if (width < CLICK) return;
    const view: View = [posToVal(left, "x"), posToVal(left + width, "x")];
    // Once uPlot has heard the end of the drag: a plot that is destroyed before would hear every later one too.
    setTimeout(() => this.zoom(view));
  }

  /** Arrow keys move the cursor from step to step, Escape takes it away. */
  #key(event: KeyboardEvent): void {
    const moves: { [key: string]: number } = { ArrowLeft: -1, ArrowRight: 1 };
    const move = moves[event.key];
    if (this.#points.length === 0 || (move === undefined && event.key !== "Escape")) return;
    if (move !== undefined) event.preventDefault();
    void this.#load().then(() => {
      this.#build();
      // uPlot has the scales of a new plot once the present task has ended.
      queueMicrotask(() => this.#move(move));
    });
  }

  /** Moves the cursor by a number of steps; without one it goes. */
  #move(by: number | undefined): void {
    const plot = this.#plot;
    if (!plot) return;
    if (by === undefined) {
      plot.setCursor({ left: -10, top: -10 });
      return;
    }
    const { left = -1 } = plot.cursor;
    const from = left < 0 ? this.#points.length - 1 : this.#at(plot.posToVal(left, "x")) + by;
    const { step } = this.#points[Math.min(Math.max(from, 0), this.#points.length - 1)]!;
    plot.setCursor({ left: plot.valToPos(step, "x"), top: 0 });
  }

  /** Index of the point that is nearest to a step. */
  #at(wanted: number): number {
    let best = 0;
    for (const [at, { step }] of this.#points.entries()) {
      if (Math.abs(step - wanted) < Math.abs(this.#points[best]!.step - wanted)) best = at;
    }
    return best;
  }

  /** Says the values under the cursor. */
  #tell(plot: uPlot): void {
    const { left = -1 } = plot.cursor;
    if (left < 0 || this.#points.length === 0) {
      this.#events.values("");
      return;
    }
    const at = this.#at(plot.posToVal(left, "x"));
    const { step, loss, gradNorm, learningRate } = this.#points[at]!;
    const validation = this.#validation.slice(0, at + 1).findLast((one) => one !== null);
    const parts = [`step ${step}: loss ${digits(loss)}`];
    if (validation != null) parts.push(`validation ${digits(validation)}`);
    if (gradNorm !== undefined) parts.push(`gradient norm ${digits(gradNorm)}`);
    if (learningRate !== undefined) parts.push(`learning rate ${digits(learningRate)}`);
    this.#events.values(parts.join(", "));
  }
}
