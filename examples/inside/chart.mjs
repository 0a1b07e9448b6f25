// Pictures of numbers as SVG: curves, and squares that are the darker the larger their number is.

const COLOURS = ["#2563eb", "#dc2626", "#059669", "#9333ea", "#d97706"];
const marked = (text) => `${text}`.replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);
const text = (x, y, said, more = "") => `<text x="${x}" y="${y}" ${more}>${marked(said)}</text>`;

const svg = (width, height, parts) =>
  `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" font-family="sans-serif" font-size="12">
<rect width="${width}" height="${height}" fill="#fff"/>
${parts.flat(9).join("\n")}
</svg>
`;

const [LEFT, TOP, WIDTH, HEIGHT] = [56, 40, 400, 220];

/**
 * Curves over the same axes.
 *
 * @param series - of each its name and its points, `[x, y]`; `dashed` if it is of a second kind.
 */
function curves({ title, x, y, series, most }, left) {
  const points = series.flatMap((one) => one.points);
  const right = Math.max(...points.map(([at]) => at));
  const top = most ?? Math.max(...points.map(([, value]) => value));
  const place = ([at, value]) => [
    left + LEFT + (at / right) * WIDTH,
    TOP + HEIGHT - (Math.min(value, top) / top) * HEIGHT,
  ];
  const ticks = [0, 0.25, 0.5, 0.75, 1];
  return [
    text(left + LEFT, 22, title, 'font-weight="bold"'),
    ticks.map((tick) => {
      const [, at] = place([0, tick * top]);
      return [
        `<line x1="${left + LEFT}" x2="${left + LEFT + WIDTH}" y1="${at}" y2="${at}" stroke="#ddd"/>`,
        text(left + LEFT - 6, at + 4, +(tick * top).toFixed(2), 'text-anchor="end"'),
        text(
          left + LEFT + tick * WIDTH,
          TOP + HEIGHT + 18,
          Math.round(tick * right),
          'text-anchor="middle"',
        ),
      ];
    }),
    text(left + LEFT + WIDTH / 2, TOP + HEIGHT + 36, x, 'text-anchor="middle"'),
    text(left + LEFT - 44, TOP - 6, y),
    series.map(({ name, points: own, dashed }, index) => {
      const colour = COLOURS[index % COLOURS.length];
      const line = own
        .map((point) =>
          place(point)
            .map((at) => at.toFixed(1))
            .join(","),
        )
        .join(" ");
      const style = `fill="none" stroke="${colour}" stroke-width="2"${dashed ? ' stroke-dasharray="6 4"' : ""}`;
      const at = TOP + HEIGHT + 56 + 16 * index;
      return [
        `<polyline points="${line}" ${style}/>`,
        `<line x1="${left + LEFT}" x2="${left + LEFT + 28}" y1="${at}" y2="${at}" ${style}/>`,
        text(left + LEFT + 36, at + 4, name),
      ];
    }),
  ];
}

/** Bars with a number each. */
function bars({ title, rows }, left) {
  const most = Math.max(...rows.map(({ value }) => value), 1e-9);
  return [
    text(left + LEFT, 22, title, 'font-weight="bold"'),
    rows.map(({ name, value }, index) => {
      const at = TOP + index * Math.min(26, HEIGHT / rows.length);
      const length = Math.max(0, (value / most) * (WIDTH - 160));
      return [
        text(left + LEFT + 100, at + 14, name, 'text-anchor="end"'),
        `<rect x="${left + LEFT + 108}" y="${at + 2}" width="${length.toFixed(1)}" height="16" fill="${COLOURS[0]}"/>`,
        text(left + LEFT + 114 + length, at + 14, value.toFixed(2)),
      ];
    }),
  ];
}

/** Squares with a text each, in rows from the bottom up; `values` are from 0 to 1. */
function squares({ title, columns, rows, values, said, wide = 64 }, left) {
  const tall = 26;
  const bottom = TOP + rows.length * tall;
  return [
    text(left + LEFT, 22, title, 'font-weight="bold"'),
    rows.map((name, row) => {
      const y = bottom - (row + 1) * tall;
      return [
        text(left + LEFT + 52, y + 17, name, 'text-anchor="end"'),
        columns.map((_, column) => {
          const value = Math.min(1, Math.max(0, values[row][column]));
          const x = left + LEFT + 58 + column * wide;
          const ink = value > 0.55 ? "#fff" : "#111";
          return [
            `<rect x="${x}" y="${y}" width="${wide - 2}" height="${tall - 2}" fill="${COLOURS[0]}" fill-opacity="${value.toFixed(3)}" stroke="#ddd"/>`,
            text(
              x + wide / 2 - 1,
              y + 16,
              said[row][column],
              `text-anchor="middle" fill="${ink}" font-size="11"`,
            ),
          ];
        }),
      ];
    }),
    columns.map((name, column) =>
      text(
        left + LEFT + 57 + (column + 0.5) * wide,
        bottom + 16,
        name,
        'text-anchor="middle" font-size="11"',
      ),
    ),
  ];
}

const KINDS = { curves, bars, squares };

/** A picture of panels side by side, each `{ kind, ... }`. */
export function picture(panels) {
  const wide = ({ kind, columns, wide: each = 64 }) =>
    kind === "squares" ? LEFT + 90 + columns.length * each : LEFT + WIDTH + 40;
  let left = 0;
  const parts = panels.map((panel) => {
    const drawn = KINDS[panel.kind](panel, left);
    left += wide(panel);
    return drawn;
  });
  const rows = Math.max(...panels.map((panel) => panel.series?.length ?? 0));
  const tall = Math.max(
    ...panels.map(({ kind, rows: own = [] }) =>
      kind === "squares"
        ? TOP + own.length * 26 + 40
        : kind === "bars"
          ? TOP + HEIGHT
          : TOP + HEIGHT + 56 + 16 * rows,
    ),
  );
  return svg(left, tall + 8, parts);
}
