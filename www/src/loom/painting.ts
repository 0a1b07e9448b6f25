/** Paints a weave: the letters' threads, what the heads look at, the feed-forward blocks, and the tiles. */
import { curveOf, type Geometry } from "./geometry.ts";
import type { Ink } from "./ink.ts";
import type { Kit, Pen, Threads } from "./pen.ts";
import type { Tiles } from "./tiles.ts";
import type { Weave } from "./weave.ts";

/** A place on the loom. A thread has all four numbers, a tile of a letter only `at`. */
export interface Place {
  readonly at: number;
  readonly layer?: number;
  readonly head?: number;
  readonly from?: number;
}

/** A thread between two letters. */
export type Thread = Required<Place>;

/** What is drawn beside the weave. */
export interface Beside {
  /** The right answer's letters, where there is one. */
  readonly wanted: readonly number[] | undefined;
  /** What a recording says at each letter of the answer. */
  readonly ghost: readonly number[];
}

/** All that a picture is made of. */
export interface Scene {
  readonly weave: Weave;
  readonly beside: Beside;
  /** Shares as they are drawn: `[layer][head][at][from]` in a row. */
  readonly shares: Float32Array;
  readonly geometry: Geometry;
  readonly ink: Ink;
  readonly pointed: Place | undefined;
  readonly chosen: Place | undefined;
  /** Milliseconds since the picture before. */
  readonly elapsed: number;
}

/** Shares below it are not drawn. */
export const LEAST = 0.025;
/** Strengths that are told apart. */
const STRENGTHS = 16;

/** How far a head's threads lie beside the middle, in pixels. */
export function headOffset({ pitch }: Geometry, head: number, heads: number): number {
  return heads < 2 ? 0 : (head / (heads - 1) - 0.5) * Math.min(9, pitch * 0.26);
}

/** Paints all of it. Says whether tiles are still turning. */
export function paint<Path extends Threads>(kit: Kit<Path>, tiles: Tiles, scene: Scene): boolean {
  const { pen } = kit;
  const { weave, beside, geometry, ink, pointed, chosen, elapsed } = scene;
  warp(pen, scene);
  weft(kit, scene);
  shuttles(pen, scene);
  if (geometry.named) names(pen, scene);
  const focus = pointed?.at ?? chosen?.at;
  return tiles.draw(pen, geometry, ink, { weave, ...beside, focus, elapsed });
}

/** A thread for each letter, through all layers. */
function warp(pen: Pen, { weave, geometry, ink }: Scene): void {
  const { x, pitch, warpTop, warpBottom } = geometry;
  pen.lineCap = "butt";
  for (let at = 0; at < weave.columns; at++) {
    pen.globalAlpha = at < weave.tokens.length ? 1 : 0.35;
    pen.strokeStyle = ink.thread;
    pen.lineWidth = Math.min(6, Math.max(3, pitch * 0.1));
    pen.beginPath();
    pen.moveTo(x(at), warpTop);
    pen.lineTo(x(at), warpBottom);
    pen.stroke();
  }
  pen.globalAlpha = 1;
}

/** What the rows are called. */
function names(pen: Pen, { weave, beside, geometry, ink }: Scene): void {
  const { left, top, bottom, bands, ghost } = geometry;
  pen.font = "13px system-ui, sans-serif";
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  pen.fillStyle = ink.muted;
  const rows: (readonly [string, number])[] = [
    [weave.answers ? "it says" : "it says next", top],
    ["it reads", bottom],
    ...bands.map(
      ({ from, to }, layer) =>
        [`layer ${(weave.numbers?.[layer] ?? layer) + 1}`, (from + to) / 2] as const,
    ),
    ...bands.slice(0, -1).map(({ lens }) => ["it would say", lens] as const),
  ];
  if (beside.ghost.length > 0) rows.push(["recording", ghost]);
  for (const [name, y] of rows) pen.fillText(name, left - 6, y);
}

/**
 * Threads of all heads. Those of one head and strength are one path. There may be 17,000 of them, 60 times a second: none
 * makes an object.
 */
function weft<Path extends Threads>(kit: Kit<Path>, scene: Scene): void {
  const { weave, shares, geometry } = scene;
  const { tokens, columns } = weave;
  const { layers, heads } = weave.shape;
  const paths: Path[] = [];
  const x = tokens.map((_, at) => geometry.x(at));
  for (let layer = 0; layer < layers; layer++) {
    for (let head = 0; head < heads; head++) {
      const offset = headOffset(geometry, head, heads);
      // Only columns tell the threads of a head apart.
      const [, y0, , y1, , y2, , y3] = curveOf(geometry, layer, [0, 0], offset);
      for (let at = 0; at < tokens.length; at++) {
        const start = ((layer * heads + head) * columns + at) * columns;
        const lit = light(scene, layer, head, at) * STRENGTHS;
        const x1 = x[at]! + offset;
        for (let from = 0; from <= at; from++) {
          const share = shares[start + from]!;
          if (share < LEAST) continue;
          const strength = Math.min(STRENGTHS - 1, Math.floor(share * STRENGTHS));
          const key = (lit + strength) * heads + head;
          let path = paths[key];
          if (!path) paths[key] = path = kit.path();
          const x0 = x[from]! + offset;
          path.moveTo(x0, y0);
          path.bezierCurveTo(x0, y1, x1, y2, x1, y3);
        }
      }
    }
  }
  strokes(kit, paths, heads, scene);
}

/** The threads that are drawn. */
export function* threadsOf({ weave, shares }: Pick<Scene, "weave" | "shares">): Generator<Thread> {
  const { tokens, columns } = weave;
  const { layers, heads } = weave.shape;
  for (let layer = 0; layer < layers; layer++) {
    for (let head = 0; head < heads; head++) {
      for (let at = 0; at < tokens.length; at++) {
        const start = ((layer * heads + head) * columns + at) * columns;
        for (let from = 0; from <= at; from++) {
          if (shares[start + from]! >= LEAST) yield { layer, head, at, from };
        }
      }
    }
  }
}

/** How much the threads of a letter in a head stand out: 0 a little, 2 fully. */
function light(
  { weave, pointed, chosen }: Scene,
  layer: number,
  head: number,
  at: number,
): 0 | 1 | 2 {
  const focus = pointed ?? chosen;
  const idle = at < weave.given - 1 ? 0 : 1;
  if (!focus) return idle;
  if (focus.head !== undefined && focus.from !== undefined) {
    const is = focus.head === head && focus.layer === layer && focus.at === at;
    return is ? 2 : pointed ? 0 : idle;
  }
  if (focus.at === at) return 2;
  return pointed ? 0 : idle;
}

function strokes<Path extends Threads>(
  { pen, stroke }: Kit<Path>,
  paths: readonly Path[],
  heads: number,
  { ink, geometry: { pitch } }: Scene,
): void {
  pen.lineCap = "round";
  // What stands out lies on top, and of that the strongest. `forEach` leaves out what has no threads.
  paths.forEach((path, key) => {
    const head = key % heads;
    const strength = Math.floor(key / heads) % STRENGTHS;
    const stands = Math.floor(key / heads / STRENGTHS);
    const share = (strength + 0.5) / STRENGTHS;
    pen.strokeStyle = ink.heads[head % ink.heads.length]!;
    pen.lineWidth =
      (0.7 + 3.1 * share) * Math.min(1, 0.45 + pitch / 90) * (stands === 2 ? 1.15 : 1);
    pen.globalAlpha = Math.min(1, 0.07 + share ** 0.9) * ([0.3, 0.72, 0.97][stands] ?? 1);
    stroke(path);
  });
  pen.globalAlpha = 1;
}

/** The feed-forward blocks: the thicker and darker, the more they change the thread. */
function shuttles(pen: Pen, { weave, geometry, ink }: Scene): void {
  const { changes, tokens, given, shape } = weave;
  const { x, bands, pitch } = geometry;
  pen.fillStyle = ink.shuttle;
  for (let layer = 0; layer < shape.layers; layer++) {
    const { shuttle, to } = bands[layer]!;
    const half = Math.max(5, to - 5 - shuttle);
    for (let at = 0; at < tokens.length; at++) {
      const change = Math.min(1, changes[layer]![at]! / 2);
      const wide = Math.min(pitch * 0.2, 2.5 + 6 * change);
      pen.globalAlpha = (0.15 + 0.75 * change) * (at < given - 1 ? 0.6 : 1);
      pen.beginPath();
      pen.moveTo(x(at), shuttle - half);
      pen.quadraticCurveTo(x(at) + wide * 2, shuttle, x(at), shuttle + half);
      pen.quadraticCurveTo(x(at) - wide * 2, shuttle, x(at), shuttle - half);
      pen.fill();
    }
  }
  pen.globalAlpha = 1;
}
