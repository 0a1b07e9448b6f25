/** Draws the loom, and glides from one weave to the next. */
import { curveOf, distance, type Geometry, geometryOf } from "./geometry.ts";
import { type Ink, inkOf } from "./ink.ts";
import { headAt } from "./pass.ts";
import { Tiles } from "./tiles.ts";
import type { Weave } from "./weave.ts";

/** A place on the loom. A thread has all four numbers, a tile of a letter only `at`. */
export interface Place {
  readonly at: number;
  readonly layer?: number;
  readonly head?: number;
  readonly from?: number;
}

/** What is drawn beside the weave. */
export interface Beside {
  /** The right answer's letters, where there is one. */
  readonly wanted: readonly number[] | undefined;
  /** What a recording says at each letter of the answer. */
  readonly ghost: readonly number[];
}

/** Shares below it are not drawn. */
const LEAST = 0.025;
/** Strengths that are told apart. */
const STRENGTHS = 16;
/** Milliseconds in which a thread goes most of its way, and in which pictures fade where nothing may move. */
const [GLIDE, FADE] = [140, 240];
/** Pixels from a thread at which it is pointed at. */
const NEAR = 6;

const still = matchMedia("(prefers-reduced-motion: reduce)");
const dark = matchMedia("(prefers-color-scheme: dark)");

/** A thread as it was last drawn. */
interface Drawn {
  readonly layer: number;
  readonly head: number;
  readonly at: number;
  readonly from: number;
}

export class Drawing {
  readonly canvas: HTMLCanvasElement;
  readonly #context: CanvasRenderingContext2D;
  #weave: Weave | undefined;
  #beside: Beside = { wanted: undefined, ghost: [] };
  #geometry: Geometry | undefined;
  #ink: Ink = inkOf();
  readonly #tiles = new Tiles();
  /** Shares as they are drawn now, and as they are to be: `[layer][head][at][from]` in a row. */
  #now = new Float32Array(0);
  #next = new Float32Array(0);
  #drawn: Drawn[] = [];
  #last = 0;
  #asked = false;
  /** The picture before, which fades where nothing may move. */
  #before: { picture: HTMLCanvasElement; since: number } | undefined;
  /** What is chosen, and what is pointed at. */
  chosen: Place | undefined;
  pointed: Place | undefined;

  constructor(canvas: HTMLCanvasElement) {
    this.canvas = canvas;
    this.#context = canvas.getContext("2d")!;
    new ResizeObserver(() => this.refresh()).observe(canvas);
    dark.addEventListener("change", () => {
      this.#ink = inkOf();
      this.refresh();
    });
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
    if (still.matches && before) this.#fade();
    if (!same) {
      this.#now = new Float32Array(size);
      this.#tiles.clear();
    }
    this.#weave = weave;
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
    if (still.matches) this.#now = this.#next.slice();
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

  /** Draws soon. */
  refresh(): void {
    if (this.#asked) return;
    this.#asked = true;
    requestAnimationFrame((time) => {
      this.#asked = false;
      this.#frame(time);
    });
  }

  #frame(time: number): void {
    const weave = this.#weave;
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (!weave || width === 0) return;
    const elapsed = Math.min(64, time - this.#last);
    this.#last = time;
    const moves = this.#glide(elapsed);
    const scale = Math.min(2, devicePixelRatio);
    const [wide, high] = [Math.round(width * scale), Math.round(height * scale)];
    if (this.canvas.width !== wide || this.canvas.height !== high) {
      this.canvas.width = wide;
      this.canvas.height = high;
    }
    const context = this.#context;
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, height);
    const { columns, shape } = weave;
    this.#geometry = geometryOf({
      width,
      height,
      columns,
      layers: shape.layers,
      named: width > 560,
    });
    this.#warp(weave, this.#geometry);
    this.#weft(weave, this.#geometry);
    this.#shuttles(weave, this.#geometry);
    if (width > 560) this.#names(weave, this.#geometry);
    const turns = this.#tiles.draw(context, this.#geometry, this.#ink, {
      weave,
      ...this.#beside,
      focus: this.pointed?.at ?? this.chosen?.at,
      elapsed: still.matches ? FADE : elapsed,
    });
    const fades = this.#fadeOut(wide, high);
    if (moves || turns || fades) this.refresh();
  }

  /** Moves all threads on. Says whether they are still on their way. */
  #glide(elapsed: number): boolean {
    const pace = 1 - Math.exp(-elapsed / GLIDE);
    let most = 0;
    for (let at = 0; at < this.#now.length; at++) {
      const way = this.#next[at]! - this.#now[at]!;
      if (way === 0) continue;
      most = Math.max(most, Math.abs(way));
      this.#now[at]! += way * pace;
    }
    if (most > 0.004) return true;
    this.#now.set(this.#next);
    return false;
  }

  #fadeOut(wide: number, high: number): boolean {
    if (!this.#before) return false;
    const share = (performance.now() - this.#before.since) / FADE;
    if (share >= 1) {
      this.#before = undefined;
      return false;
    }
    this.#context.setTransform(1, 0, 0, 1, 0, 0);
    this.#context.globalAlpha = 1 - share;
    this.#context.drawImage(this.#before.picture, 0, 0, wide, high);
    this.#context.globalAlpha = 1;
    return true;
  }

  /** A thread for each letter, through all layers. */
  #warp({ columns, tokens }: Weave, { x, pitch, warpTop, warpBottom }: Geometry): void {
    const context = this.#context;
    context.lineCap = "butt";
    for (let at = 0; at < columns; at++) {
      context.globalAlpha = at < tokens.length ? 1 : 0.35;
      context.strokeStyle = this.#ink.thread;
      context.lineWidth = Math.min(6, Math.max(3, pitch * 0.1));
      context.beginPath();
      context.moveTo(x(at), warpTop);
      context.lineTo(x(at), warpBottom);
      context.stroke();
    }
    context.globalAlpha = 1;
  }

  /** What the rows are called. */
  #names({ answers }: Weave, { left, top, bottom, bands, ghost }: Geometry): void {
    const context = this.#context;
    context.font = "13px system-ui, sans-serif";
    context.textAlign = "right";
    context.textBaseline = "middle";
    context.fillStyle = this.#ink.muted;
    const rows: (readonly [string, number])[] = [
      [answers ? "it says" : "it says next", top],
      ["it reads", bottom],
      ...bands.map(({ from, to }, layer) => [`layer ${layer + 1}`, (from + to) / 2] as const),
      ...bands.slice(0, -1).map(({ lens }) => ["it would say", lens] as const),
    ];
    if (this.#beside.ghost.length > 0) rows.push(["recording", ghost]);
    for (const [name, y] of rows) context.fillText(name, left - 6, y);
  }

  /** How far a head's threads lie beside the middle. */
  #offset(head: number, heads: number): number {
    const room = Math.min(9, (this.#geometry?.pitch ?? 20) * 0.26);
    return heads < 2 ? 0 : (head / (heads - 1) - 0.5) * room;
  }

  /** Threads of all heads. Those of one head and strength are one path. */
  #weft({ shape, columns, tokens, given }: Weave, geometry: Geometry): void {
    const { layers, heads } = shape;
    const paths = new Map<number, Path2D>();
    const focus = this.pointed ?? this.chosen;
    this.#drawn = [];
    for (let layer = 0; layer < layers; layer++) {
      for (let head = 0; head < heads; head++) {
        const offset = this.#offset(head, heads);
        for (let at = 0; at < tokens.length; at++) {
          const start = ((layer * heads + head) * columns + at) * columns;
          for (let from = 0; from <= at; from++) {
            const share = this.#now[start + from]!;
            if (share < LEAST) continue;
            const light = this.#light(focus, { layer, head, at, from }, given);
            const strength = Math.min(STRENGTHS - 1, Math.floor(share * STRENGTHS));
            const key = (light * STRENGTHS + strength) * heads + head;
            const path = paths.get(key) ?? new Path2D();
            paths.set(key, path);
            const [x0, y0, ...rest] = curveOf(geometry, layer, [from, at], offset);
            path.moveTo(x0, y0);
            path.bezierCurveTo(...rest);
            this.#drawn.push({ layer, head, at, from });
          }
        }
      }
    }
    this.#strokes(paths, heads, geometry.pitch);
  }

  /** How much a thread stands out: 0 a little, 2 fully. */
  #light(focus: Place | undefined, thread: Drawn, given: number): 0 | 1 | 2 {
    const idle = thread.at < given - 1 ? 0 : 1;
    if (!focus) return idle;
    if (focus.head !== undefined && focus.from !== undefined) {
      const is =
        focus.head === thread.head && focus.layer === thread.layer && focus.at === thread.at;
      return is ? 2 : this.pointed ? 0 : idle;
    }
    if (focus.at === thread.at) return 2;
    return this.pointed ? 0 : idle;
  }

  #strokes(paths: ReadonlyMap<number, Path2D>, heads: number, pitch: number): void {
    const context = this.#context;
    context.lineCap = "round";
    // What stands out lies on top, and of that the strongest.
    for (const [key, path] of [...paths].sort(([a], [b]) => a - b)) {
      const head = key % heads;
      const strength = Math.floor(key / heads) % STRENGTHS;
      const light = Math.floor(key / heads / STRENGTHS);
      const share = (strength + 0.5) / STRENGTHS;
      context.strokeStyle = this.#ink.heads[head % this.#ink.heads.length]!;
      context.lineWidth =
        (0.7 + 3.1 * share) * Math.min(1, 0.45 + pitch / 90) * (light === 2 ? 1.15 : 1);
      context.globalAlpha = Math.min(1, 0.07 + share ** 0.9) * ([0.3, 0.72, 0.97][light] ?? 1);
      context.stroke(path);
    }
    context.globalAlpha = 1;
  }

  /** The feed-forward blocks: the thicker and darker, the more they change the thread. */
  #shuttles({ changes, tokens, given, shape }: Weave, { x, bands, pitch }: Geometry): void {
    const context = this.#context;
    context.fillStyle = this.#ink.shuttle;
    for (let layer = 0; layer < shape.layers; layer++) {
      const { shuttle, to } = bands[layer]!;
      const half = Math.max(5, to - 5 - shuttle);
      for (let at = 0; at < tokens.length; at++) {
        const change = Math.min(1, changes[layer]![at]! / 2);
        const wide = Math.min(pitch * 0.2, 2.5 + 6 * change);
        context.globalAlpha = (0.15 + 0.75 * change) * (at < given - 1 ? 0.6 : 1);
        context.beginPath();
        context.moveTo(x(at), shuttle - half);
        context.quadraticCurveTo(x(at) + wide * 2, shuttle, x(at), shuttle + half);
        context.quadraticCurveTo(x(at) - wide * 2, shuttle, x(at), shuttle - half);
        context.fill();
      }
    }
    context.globalAlpha = 1;
  }

  /** What lies at a point, in CSS pixels of the canvas. */
  placeAt(x: number, y: number): Place | undefined {
    const [geometry, weave] = [this.#geometry, this.#weave];
    if (!geometry || !weave) return undefined;
    const column = Math.floor((x - geometry.x(0)) / geometry.pitch + 0.5);
    const inside = column >= 0 && column < weave.tokens.length;
    if (inside && Math.abs(x - geometry.x(column)) < 9) return { at: column };
    if (inside && (y < geometry.warpTop || y > geometry.warpBottom)) return { at: column };
    let nearest: Drawn | undefined;
    let least = NEAR;
    for (const thread of this.#drawn) {
      const band = geometry.bands[thread.layer]!;
      if (y < band.to || y > band.from) continue;
      const offset = this.#offset(thread.head, weave.shape.heads);
      const far = distance(curveOf(geometry, thread.layer, [thread.from, thread.at], offset), x, y);
      if (far > least) continue;
      least = far;
      nearest = thread;
    }
    return nearest ?? (inside ? { at: column } : undefined);
  }
}
