// The table of the sweep over limits, from the newest results of each adapter.
import { AXES } from "./limits-cell.mjs";
import { newest } from "./results.mjs";

const NAMES = {
  buffers: "storage buffers",
  workgroup: "workgroup memory",
  invocations: "invocations per workgroup",
  binding: "a binding",
  subgroups: "subgroups",
};
const units = (bytes) => (bytes < 1 << 20 ? `${bytes / 1024} KiB` : `${bytes / 2 ** 20} MiB`);
const show = { workgroup: units, binding: units, subgroups: (value) => (value ? "on" : "off") };

/** The table as Markdown, with what it shows. */
export function limitsTable() {
  const sources = newest("limits");
  const columns = sources.flatMap(({ results }) =>
    results.map(({ host, capabilities: { adapter, software }, rows }) => {
      const name = [adapter.vendor, adapter.architecture].filter(Boolean).join(" ");
      return { head: `${host}, ${name || (software ? "on the CPU" : "unnamed")}`, rows };
    }),
  );
  const values = (cell) => Object.entries(cell);
  const alone = Object.entries(AXES).flatMap(([axis, list]) =>
    list.map((value) => [
      `${NAMES[axis]}: ${show[axis]?.(value) ?? value}`,
      ...columns.map(({ rows }) => {
        const found = rows.find(({ cell }) => values(cell).length === 1 && cell[axis] === value);
        return found?.result ?? "not run";
      }),
    ]),
  );
  const together = columns.map(({ rows }) => {
    const several = rows.filter(({ cell }) => values(cell).length > 1);
    const count = (wanted) => several.filter(({ result }) => result === wanted).length;
    const kinds = ["trains", "refused", "no effect", "wrong"];
    return kinds
      .filter(count)
      .map((kind) => `${count(kind)} ${kind}`)
      .join(", ");
  });
  const line = (cells) => `| ${cells.join(" | ")} |`;
  const heads = ["cap", ...columns.map(({ head }) => head)];
  const files = sources.map(({ file, date }) => `\`${file}\`, ${date}`).join("; ");
  return [
    "A cell trains when its losses are within 1e-3 of those without caps, and every text and binding that reaches " +
      "the GPU is within the caps. One that is refused gives `limit-exceeded` before anything is allocated. " +
      `A cap above what the adapter has, or subgroups where it has none, has no effect (${files}).\n`,
    line(heads),
    `|${"---|".repeat(heads.length)}`,
    ...alone.map(line),
    line(["all at once", ...together]),
  ].join("\n");
}
