/** Draws the loom, and glides from one weave to the next. */
import { curveOf, distance, type Geometry, geometryOf } from "./geometry.ts";
import { type Ink, inkOf } from "./ink.ts";
import { LayerTurns } from "./layer-turns.ts";
import {
  type Beside,
  headOffset,
  LEAST,
  type Place,
  paint,
  type Thread,
  threadsOf,
} from "./painting.ts";
import { headAt } from "./pass.ts";
import { canvasKit, type Kit, type Threads } from "./pen.ts";
import { Tiles } from "./tiles.ts";
import type { Weave } from "./weave.ts";

export type { Beside, Place } from "./painting.ts";

/** Milliseconds in which a thread goes most of its way, and in which pictures fade where nothing may move. */
const [GLIDE, FADE] = [140, 240];
/** Pixels from a thread at which it is pointed at. */
const NEAR = 6;
/** Pixels by which threads reach beyond the curves that are their middles. */
const REACH = 3;

const still = matchMedia("(prefers-reduced-motion: reduce)");
const dark = matchMedia("(prefers-color-scheme: dark)");

/** Pixels of a loom on a phone, which has no room for the rows' names. */
const NARROW = 560;

export class Drawing {
  readonly canvas: HTMLCanvasElement;
  #weave: Weave | undefined;
  #beside: Beside = { wanted: undefined, ghost: [] };
  #geometry: Geometry | undefined;
  /** Of the canvas, in CSS pixels. To ask for it makes the browser lay out the page, which a picture has no time for. */
  #size: { width: number; height: number } | undefined;
  #ink: Ink = inkOf();
  readonly #tiles = new Tiles();
  /** Shares as they are drawn now, and as they are to be: `[layer][head][at][from]` in a row. */
  #now = new Float32Array(0);
  #next = new Float32Array(0);
  #last = 0;
  #asked = false;
  /** Whether the last picture asked for another. */
  #moves = false;
  #turns = new LayerTurns(1);
  /** Threads that are drawn. */
  #threads = 0;
  /** Whether the canvas is in view. Where it is not, nothing moves. */
  #seen = true;
  /** The picture before, which fades where nothing may move. */
  #before: { picture: HTMLCanvasElement; since: number } | undefined;
  /** What is chosen, and what is pointed at. */
  chosen: Place | undefined;
  pointed: Place | undefined;

  constructor(canvas: HTMLCanvasElement) {
    this.canvas = canvas;
    new ResizeObserver(() => {
      this.#size = { width: canvas.clientWidth, height: canvas.clientHeight };
      this.refresh();
    }).observe(canvas);
    new IntersectionObserver((entries) => {
      this.#seen = entries.at(-1)!.isIntersecting;
      this.refresh();
    }).observe(canvas);
    dark.addEventListener("change", () => {
      this.#ink = inkOf();
      this.refresh();
    });
  }

  /** Made by the first picture, and not before: the browser then waits for its GPU, which is opening for the model. */
  get #context(): CanvasRenderingContext2D {
    return this.canvas.getContext("2d")!;
  }

  get weave(): Weave | undefined {
    return this.#weave;
  }

  /** Shows a weave: threads glide to it from where they are. */
  show(weave: Weave, beside: Beside, cut: ReadonlySet<number>): void {
    const { shape, columns } = weave;
    const size = shape.layers * shape.heads * columns * columns;
    const before = this.#weave;
    const same =
      before?.columns === columns &&
      before.shape.layers === shape.layers &&
      before.shape.heads === shape.heads;
    if (still.matches && before && this.#turns.all) this.#fade();
    if (!same) {
      this.#now = new Float32Array(size);
      this.#turns = new LayerTurns(shape.layers);
      this.#tiles.clear();
    }
    this.#weave = weave;
    this.canvas.style.setProperty("--layers", String(shape.layers));
    this.#beside = beside;
    this.#next = new Float32Array(size);
    for (const [layer, heads] of weave.shares.entries()) {
      for (const [head, rows] of heads.entries()) {
        for (const [at, row] of rows.entries()) {
          const start = ((layer * shape.heads + head) * columns + at) * columns;
          if (!cut.has(headAt(shape.heads, layer, head))) this.#next.set(row, start);
        }
      }
    }
    if (still.matches || !this.#seen) this.#now = this.#next.slice();
    this.refresh();
  }

  #fade(): void {
    const picture = document.createElement("canvas");
    picture.width = this.canvas.width;
    picture.height = this.canvas.height;
    if (picture.width * picture.height === 0) return;
    picture.getContext("2d")!.drawImage(this.canvas, 0, 0);
    this.#before = { picture, since: performance.now() };
  }

  /** Draws all of it soon. */
  refresh(): void {
    this.#turns.changed(this.#threads);
    this.#ask();
  }

  #ask(): void {
    if (this.#asked) return;
    this.#asked = true;
    requestAnimationFrame((time) => {
      this.#asked = false;
      this.#frame(time);
    });
  }

  #frame(time: number): void {
    const weave = this.#weave;
    if (!weave || !this.#seen) return;
    this.#size ??= { width: this.canvas.clientWidth, height: this.canvas.clientHeight };
    const { width, height } = this.#size;
    if (width === 0) return;
    const gap = time - this.#last;
    const elapsed = Math.min(64, gap);
    this.#last = time;
    const glides = this.#glide(elapsed);
    if (glides) this.#turns.changed(this.#threads);
    const scale = Math.min(2, devicePixelRatio);
    const [wide, high] = [Math.round(width * scale), Math.round(height * scale)];
    if (this.canvas.width !== wide || this.canvas.height !== high) {
      this.canvas.width = wide;
      this.canvas.height = high;
      this.#turns.changed(this.#threads);
    }
    const context = this.#context;
    this.#geometry = this.#room(weave, width, height);
    const layers = this.#turns.next(this.#moves ? gap : undefined);
    context.save();
    this.#leaveOut(layers, scale);
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, height);
    const turns = paint(canvasKit(context), this.#tiles, {
      weave,
      layers,
      beside: this.#beside,
      shares: this.#now,
      geometry: this.#geometry,
      ink: this.#ink,
      pointed: this.pointed,
      chosen: this.chosen,
      elapsed: still.matches ? FADE : elapsed,
    });
    context.restore();
    const fades = this.#fadeOut(wide, high);
    this.#moves = glides || turns || fades || this.#turns.behind;
    if (this.#moves) this.#ask();
  }

  /** Keeps the pen off the threads of all other layers than these, whose turn it is not. */
  #leaveOut(layers: readonly number[], scale: number): void {
    const { bands } = this.#geometry!;
    if (layers.length === bands.length) return;
    const path = new Path2D();
    path.rect(0, 0, this.canvas.width, this.canvas.height);
    for (const [layer, { from, to }] of bands.entries()) {
      if (layers.includes(layer)) continue;
      // Whole pixels, since a part of one would be mixed anew in each picture.
      const [top, end] = [Math.floor((to - REACH) * scale), Math.ceil((from + REACH) * scale)];
      path.rect(0, top, this.canvas.width, end - top);
    }
    this.#context.clip(path, "evenodd");
  }

  #room({ columns, shape }: Weave, width: number, height: number): Geometry {
    return geometryOf({ width, height, columns, layers: shape.layers, named: width > NARROW });
  }

  /** Draws what is shown now elsewhere, in a room of that size. Nothing of it moves. */
  copy<Path extends Threads>(kit: Kit<Path>, width: number, height: number): void {
    const weave = this.#weave;
    if (!weave) return;
    paint(kit, new Tiles(), {
      weave,
      layers: weave.shares.keys(),
      beside: this.#beside,
      shares: this.#now,
      geometry: this.#room(weave, width, height),
      ink: this.#ink,
      pointed: undefined,
      chosen: this.chosen,
      elapsed: Number.POSITIVE_INFINITY,
    });
  }

  /** Moves all threads on. Says whether any has moved. */
  #glide(elapsed: number): boolean {
    const pace = 1 - Math.exp(-elapsed / GLIDE);
    let [most, threads] = [0, 0];
    for (let at = 0; at < this.#now.length; at++) {
      if (this.#now[at]! >= LEAST) threads++;
      const way = this.#next[at]! - this.#now[at]!;
      if (way === 0) continue;
      most = Math.max(most, Math.abs(way));
      this.#now[at]! += way * pace;
    }
    this.#threads = threads;
    if (most <= 0.004) this.#now.set(this.#next);
    return most > 0;
  }

  #fadeOut(wide: number, high: number): boolean {
    if (!this.#before) return false;
    const share = (performance.now() - this.#before.since) / FADE;
    if (share >= 1) {
      this.#before = undefined;
      this.#turns.changed(this.#threads);
      return false;
    }
    this.#context.setTransform(1, 0, 0, 1, 0, 0);
    this.#context.globalAlpha = 1 - share;
    this.#context.drawImage(this.#before.picture, 0, 0, wide, high);
    this.#context.globalAlpha = 1;
    return true;
  }

  /** What lies at a point, in CSS pixels of the canvas. */
  placeAt(x: number, y: number): Place | undefined {
    const [geometry, weave] = [this.#geometry, this.#weave];
    if (!geometry || !weave) return undefined;
    const column = Math.floor((x - geometry.x(0)) / geometry.pitch + 0.5);
    const inside = column >= 0 && column < weave.tokens.length;
    if (inside && Math.abs(x - geometry.x(column)) < 9) return { at: column };
    if (inside && (y < geometry.warpTop || y > geometry.warpBottom)) return { at: column };
    let nearest: Thread | undefined;
    let least = NEAR;
    for (const thread of threadsOf({ weave, shares: this.#now })) {
      const band = geometry.bands[thread.layer]!;
      if (y < band.to || y > band.from) continue;
      const offset = headOffset(geometry, thread.head, weave.shape.heads);
      const far = distance(curveOf(geometry, thread.layer, [thread.from, thread.at], offset), x, y);
      if (far > least) continue;
      least = far;
      nearest = thread;
    }
    return nearest ?? (inside ? { at: column } : undefined);
  }
}
