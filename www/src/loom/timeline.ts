/** Time: the loss curve is the control. Dragging it moves everything. */
import { byId, whole } from "../dom.ts";
import type { Track } from "./track.ts";

const SVG = "http://www.w3.org/2000/svg";

function draw<K extends keyof SVGElementTagNameMap>(
  tag: K,
  attributes: { readonly [name: string]: string | number },
): SVGElementTagNameMap[K] {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  return element;
}

/** Room above the curve for the moments' names, below it, and at both sides, in pixels. */
const [ABOVE, BELOW, SIDE] = [22, 10, 10];
/** Points of a curve that are drawn at most. */
const POINTS = 240;
/** Pixels between two names at least. */
const APART = 12;
/** Height of a row of names. */
const ROW = 17;
/** Pixels between two dots at least. */
const NEAR = 9;
/** Steps of a long run for which there is room at first. */
const ROOM = 1000;
/** Milliseconds between two drawings of the curves at least: a run may have a step in each picture. */
const PAUSE = 100;

/** Steps of a run that trains for which there is room: of a long run first a part, which doubles as it fills. */
function soFar({ steps, losses }: Track): number {
  const step = losses.at(-1)?.[0] ?? 0;
  let room = ROOM;
  while (room < step) room *= 2;
  return Math.min(steps, room);
}

export class Timeline {
  readonly #figure = byId("time-curve", SVGSVGElement);
  readonly #range = byId("time-range", HTMLInputElement);
  #tracks: { shown: Track; ghost: Track | undefined; beside: Track | undefined } | undefined;
  #at = 0;
  /** The step whose weights are shown. */
  #step = 0;
  #asked = false;
  #drawn = Number.NEGATIVE_INFINITY;
  /** Of the figure, as of the last drawing: to ask for it makes the browser lay out all of the page. */
  #size = { width: 0, height: 0 };

  /** @param scrub - hears to which step the visitor goes. */
  constructor(scrub: (step: number) => void) {
    this.#range.addEventListener("input", () => scrub(this.#range.valueAsNumber));
    new ResizeObserver(() => this.refresh()).observe(this.#figure);
  }

  /**
   * Shows a run, with another one in grey behind it.
   *
   * @param beside - the one on the second loom, whose steps are there, too.
   */
  show(shown: Track, ghost: Track | undefined, beside: Track | undefined): void {
    this.#tracks = { shown, ghost, beside };
    this.refresh();
  }

  /** Moves the handle. */
  set at(step: number) {
    this.#at = step;
    this.#move();
  }

  /** Says which step's weights are shown. */
  set step(step: number) {
    this.#step = step;
    this.#move();
  }

  /** Draws the curves anew, soon. */
  refresh(): void {
    if (this.#asked) return;
    this.#asked = true;
    const soon = () =>
      requestAnimationFrame(() => {
        this.#asked = false;
        this.#draw();
      });
    const wait = this.#drawn + PAUSE - performance.now();
    if (wait > 0) setTimeout(soon, wait);
    else soon();
  }

  get #steps(): number {
    const { shown, ghost, beside } = this.#tracks!;
    const longer = shown.ended ? (beside?.newest ?? 0) : 0;
    return Math.max(
      1,
      shown.ended || shown.recorded ? shown.steps : soFar(shown),
      longer,
      ghost && !shown.ended ? Math.min(ghost.steps, shown.steps) : 0,
    );
  }

  #x(step: number): number {
    const steps = this.#steps;
    return SIDE + ((this.#size.width - 2 * SIDE) * Math.min(step, steps)) / steps;
  }

  #y(loss: number, most: number): number {
    const room = this.#size.height - ABOVE - BELOW;
    return ABOVE + room * (1 - Math.min(1, loss / most));
  }

  #draw(): void {
    const { clientWidth: width, clientHeight: height } = this.#figure;
    if (!this.#tracks || width === 0) return;
    this.#drawn = performance.now();
    this.#size = { width, height };
    const { shown, ghost } = this.#tracks;
    const most = Math.max(shown.highest, ghost?.highest ?? 0) * 1.02;
    const floor = height - BELOW;
    this.#figure.replaceChildren(
      draw("line", { class: "floor", x1: SIDE, x2: this.#x(this.#steps), y1: floor, y2: floor }),
    );
    if (ghost) this.#figure.append(this.#curve(ghost, most, "ghost"));
    this.#figure.append(this.#curve(shown, most, "curve"));
    for (const [step, loss] of shown.validations) {
      const [cx, cy] = [this.#x(step), this.#y(loss, most)].map((one) => one.toFixed(1));
      this.#figure.append(draw("circle", { class: "validation", cx: cx!, cy: cy!, r: 2.5 }));
    }
    this.#figure.append(
      draw("line", { class: "handle-line", y1: 4, y2: floor }),
      draw("circle", { class: "handle", cy: floor, r: 7 }),
    );
    this.#names(shown, most);
    this.#range.max = String(this.#steps);
    this.#move();
  }

  #curve(track: Track, most: number, name: string): SVGPathElement {
    const points = track
      .curve(POINTS)
      .map(([step, mean]) => `${this.#x(step).toFixed(1)} ${this.#y(mean, most).toFixed(1)}`);
    return draw("path", { class: name, d: points.length > 0 ? `M${points.join("L")}` : "" });
  }

  #names(track: Track, most: number): void {
    const ends = [Number.NEGATIVE_INFINITY, Number.NEGATIVE_INFINITY];
    let before = Number.NEGATIVE_INFINITY;
    const { width } = this.#size;
    for (const { step, name } of track.moments) {
      const x = this.#x(step);
      const near = track.losses.find(([one]) => one >= Math.max(1, step))?.[1] ?? most;
      const y = this.#y(near, most);
      if (x - before > NEAR)
        this.#figure.append(draw("circle", { class: "moment", cx: x, cy: y, r: 4 }));
      before = x;
      const last = x > width - 90;
      const text = draw("text", {
        class: "moment-name",
        x: last ? x - 8 : x,
        y: Math.max(12, y - 10),
        "text-anchor": last ? "end" : "start",
      });
      text.textContent = name;
      this.#figure.append(text);
      // A name that would lie on another one stands above it.
      const box = text.getBBox();
      const row = ends.findIndex((end) => box.x >= end + APART);
      if (row < 0 || (row > 0 && y < 12 + ROW + 10)) text.remove();
      else {
        ends[row] = box.x + box.width;
        text.setAttribute("y", String(Math.max(12, y - 10 - row * ROW)));
      }
    }
  }

  #move(): void {
    if (!this.#tracks) return;
    const x = this.#x(this.#at);
    this.#figure.querySelector(".handle")?.setAttribute("cx", x.toFixed(1));
    for (const end of ["x1", "x2"]) {
      this.#figure.querySelector(".handle-line")?.setAttribute(end, x.toFixed(1));
    }
    this.#range.value = String(Math.round(this.#at));
    const step = this.#step;
    const loss = this.#tracks.shown.losses.findLast(([one]) => one <= Math.max(1, step))?.[1];
    // Beside a longer run the handle goes on.
    const { shown } = this.#tracks;
    const beyond = shown.ended && step === shown.newest && this.#at > step;
    const words = `step ${whole(step)}${beyond ? ", its last" : ""}`;
    const handle = beyond ? `, handle at ${whole(Math.round(this.#at))}` : "";
    const surprise = loss === undefined ? "" : `, surprise ${loss.toFixed(2)}`;
    this.#range.setAttribute("aria-valuetext", `${words}${handle}${surprise}`);
    byId("loom-step", HTMLElement).textContent = words;
    byId("loom-loss", HTMLElement).textContent =
      loss === undefined ? "" : `surprise ${loss.toFixed(2)}`;
  }
}
