/** Where things are on the loom, in CSS pixels. Layers are from below; y grows downwards. */
export interface Room {
  readonly width: number;
  readonly height: number;
  readonly columns: number;
  readonly layers: number;
  /** Whether there is room for names at the left. */
  readonly named: boolean;
}

export interface Band {
  /** Where threads leave the letters that are looked at, and where they arrive. */
  readonly from: number;
  readonly to: number;
  /** The middle of the feed-forward block, and of the tiles above. */
  readonly shuttle: number;
  readonly lens: number;
}

export interface Geometry {
  readonly x: (column: number) => number;
  readonly pitch: number;
  readonly tile: number;
  /** Middles of the tiles at both ends. */
  readonly top: number;
  readonly bottom: number;
  readonly warpTop: number;
  readonly warpBottom: number;
  readonly bands: readonly Band[];
  readonly lensTile: number;
  /** Middle of the row of letters that a recording said. */
  readonly ghost: number;
  readonly left: number;
  /** Whether there is room for names at the left. */
  readonly named: boolean;
}

/** Room for names at the left. */
const NAMES = 84;
const [WIDEST, LARGEST] = [64, 34];

export function geometryOf({ width, height, columns, layers, named }: Room): Geometry {
  const left = named ? NAMES : 2;
  const pitch = Math.min(WIDEST, (width - left - 2) / columns);
  const start = left + Math.max(0, Math.min(28, (width - left - pitch * columns) / 2));
  const tile = Math.min(LARGEST, Math.round(pitch * 0.86));
  const top = 27 + tile / 2;
  const bottom = height - 3 - tile / 2;
  const [warpTop, warpBottom] = [top + tile / 2 + 3, bottom - tile / 2 - 3];
  const lensTile = Math.min(22, Math.round(pitch * 0.78));
  // Between two layers lies a row of tiles; above the last one are those of the answer.
  const between = lensTile + 8;
  const each = (warpBottom - warpTop - between * (layers - 1)) / layers;
  const spindle = Math.min(26, each * 0.18);
  const bands = Array.from({ length: layers }, (_, layer): Band => {
    const from = warpBottom - layer * (each + between) - 4;
    const to = from - each + spindle + 12;
    return { from, to, shuttle: to - 5 - spindle / 2, lens: from + 4 - each - between / 2 };
  });
  return {
    x: (column) => start + (column + 0.5) * pitch,
    pitch,
    tile,
    top,
    bottom,
    warpTop,
    warpBottom,
    bands,
    lensTile,
    ghost: 9,
    left,
    named,
  };
}

/** A thread's four points, from the letter that is looked at to the one that looks. */
export function curveOf(
  { x, bands }: Geometry,
  layer: number,
  [from, to]: readonly [from: number, to: number],
  offset: number,
): [number, number, number, number, number, number, number, number] {
  const band = bands[layer]!;
  const [x0, x1] = [x(from) + offset, x(to) + offset];
  const reach = (band.from - band.to) * 0.62;
  const lift = offset * 1.4;
  return [x0, band.from, x0, band.from - reach + lift, x1, band.to + reach + lift, x1, band.to];
}

/** The distance of a point from a thread. */
export function distance(
  [x0, y0, x1, y1, x2, y2, x3, y3]: ReturnType<typeof curveOf>,
  x: number,
  y: number,
): number {
  let least = Number.POSITIVE_INFINITY;
  for (let step = 0; step <= 16; step++) {
    const t = step / 16;
    const u = 1 - t;
    const [a, b, c, d] = [u * u * u, 3 * u * u * t, 3 * u * t * t, t * t * t];
    least = Math.min(
      least,
      Math.hypot(a * x0 + b * x1 + c * x2 + d * x3 - x, a * y0 + b * y1 + c * y2 + d * y3 - y),
    );
  }
  return least;
}
