/** The digits as the model has them: their embeddings, seen from where they lie furthest apart. */
import { byId } from "../dom.ts";
import { inkOf } from "./ink.ts";
import type { Weights } from "./weights.ts";

const DIGITS = 10;
/** The byte of 0. */
const ZERO = 48;
/** Rounds in which the two directions are found anew; they begin where they were. */
const ROUNDS = 12;

const dot = (a: Float64Array, b: Float64Array): number =>
  a.reduce((sum, value, at) => sum + value * b[at]!, 0);

function unit(vector: Float64Array): Float64Array {
  const length = Math.sqrt(dot(vector, vector)) || 1;
  return vector.map((value) => value / length);
}

/** The two directions in which rows differ most, by power iteration. */
export function directions(
  rows: readonly Float64Array[],
  before: readonly Float64Array[],
): Float64Array[] {
  const found: Float64Array[] = [];
  for (const start of before) {
    let direction = start;
    for (let round = 0; round < ROUNDS; round++) {
      const next = new Float64Array(direction.length);
      for (const row of rows) {
        const share = dot(row, direction);
        for (let at = 0; at < next.length; at++) next[at]! += share * row[at]!;
      }
      for (const other of found) {
        const share = dot(next, other);
        for (let at = 0; at < next.length; at++) next[at]! -= share * other[at]!;
      }
      direction = unit(next);
    }
    found.push(direction);
  }
  return found;
}

/**
 * Where the digits lie, seen along the two directions in which they differ most.
 *
 * @param before - the directions of the map before, from which these are found: a map that follows a training turns
 *   slowly. Without them the look begins from the small digits to the large ones.
 * @returns the directions, and a point for each digit from 0 on.
 */
export function mapOf(
  { embedding, shape }: Pick<Weights, "embedding" | "shape">,
  before?: readonly Float64Array[],
): { directions: Float64Array[]; points: [x: number, y: number][] } {
  const rows = Array.from({ length: DIGITS }, (_, digit) => {
    const start = (ZERO + digit) * shape.width;
    return Float64Array.from(embedding.subarray(start, start + shape.width));
  });
  const middle = new Float64Array(shape.width);
  for (const row of rows) {
    for (const [at, value] of row.entries()) middle[at]! += value / DIGITS;
  }
  const centred = rows.map((row) => row.map((value, at) => value - middle[at]!));
  const start = () => [
    unit(centred[9]!.map((value, at) => value - centred[0]![at]!)),
    unit(centred[4]!.map((value, at) => value - centred[0]![at]! / 2 - centred[9]![at]! / 2)),
  ];
  const found = directions(centred, before ?? start());
  const [x, y] = found as [Float64Array, Float64Array];
  return { directions: found, points: centred.map((row) => [dot(row, x), dot(row, y)]) };
}

export class NumberLine {
  readonly #figure = byId("number-line", HTMLElement);
  readonly canvas = byId("number-line-canvas", HTMLCanvasElement);
  #directions: Float64Array[] | undefined;

  show(shown: boolean): void {
    this.#figure.hidden = !shown;
    if (!shown) this.#directions = undefined;
  }

  /** Draws the digits of these weights. */
  draw(weights: Weights): void {
    const map = mapOf(weights, this.#directions);
    this.#directions = map.directions;
    this.#paint(map.points);
  }

  #paint(points: readonly (readonly [number, number] | number[])[]): void {
    const { canvas } = this;
    const { clientWidth: width, clientHeight: height } = canvas;
    const scale = Math.min(2, devicePixelRatio);
    canvas.width = width * scale;
    canvas.height = height * scale;
    const context = canvas.getContext("2d")!;
    context.scale(scale, scale);
    const ink = inkOf();
    const most = Math.max(...points.flat().map(Math.abs)) || 1;
    const place = ([x, y]: readonly number[]): [number, number] => [
      width / 2 + (x! / most) * (width / 2 - 18),
      height / 2 - (y! / most) * (height / 2 - 18),
    ];
    const at = points.map(place);
    context.strokeStyle = ink.heads[1]!;
    context.lineWidth = 2;
    context.lineJoin = "round";
    context.beginPath();
    for (const [x, y] of at) context.lineTo(x, y);
    context.stroke();
    context.font = `600 13px ${ink.mono}`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    for (const [digit, [x, y]] of at.entries()) {
      context.fillStyle = ink.surface;
      context.strokeStyle = ink.line;
      context.lineWidth = 1;
      context.beginPath();
      context.arc(x, y, 11, 0, 2 * Math.PI);
      context.fill();
      context.stroke();
      context.fillStyle = ink.ink;
      context.fillText(String(digit), x, y + 1);
    }
  }
}
