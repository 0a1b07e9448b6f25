import type { Capabilities, PlanRow } from "tinyloom/worker";
import { byId, bytes, make, whole } from "../dom.ts";
import { fill, tableRow } from "../table.ts";
import type { Training } from "../training.ts";

/** Between the sizes of a grid, which stay on one line. */
const TIMES = "\u00a0×\u00a0";

/** One line of the plan table: equal dispatches of a phase together. */
interface PlanGroup {
  row: PlanRow;
  count: number;
  flops: number;
  bytes: number;
}

/** What tinyloom does with an optional feature. */
const USES: { readonly [feature: string]: string } = {
  subgroups: "faster sums and decoding",
  subgroupId: "shorter kernels with subgroups",
  subgroupMatrix: "products of mixed precision",
  timestamps: "the times of kernels below, nothing else",
};

/** Whether a feature is there, and what for. Nothing needs any of them. */
const featureRows = (features: Capabilities["features"]): HTMLTableRowElement[] =>
  Object.entries(features).map(([name, here]) =>
    tableRow(
      name,
      here
        ? name in USES
          ? `used for ${USES[name]}`
          : "here, and not used"
        : "not here, and not needed",
    ),
  );

/** What the adapter has. */
export function showCapabilities(capabilities: Capabilities): void {
  const { adapter, limits, features, subgroupSize, software } = capabilities;
  const adapterRows = Object.entries(adapter)
    .filter(([, text]) => text !== "")
    .map(([name, text]) => tableRow(name, text));
  const [narrow, wide] = subgroupSize;
  const limitRows = Object.entries(limits).map(([name, value]) => tableRow(name, whole(value)));
  fill(
    byId("capabilities", HTMLTableElement),
    ["Name", "Value"],
    [
      ...adapterRows,
      tableRow("computes on", software ? "the CPU (a software adapter)" : "a GPU"),
      tableRow("GPU memory of the model", make("span", "", "–")),
      tableRow("tokens per second", make("span", "", "–")),
      ...featureRows(features),
      tableRow("subgroup width", narrow === wide ? `${narrow}` : `${narrow} to ${wide}`),
      ...limitRows,
    ],
  );
}

/** Shows a value that changes, in the row of that name. */
function showRow(name: string, value: string): void {
  for (const { cells } of byId("capabilities", HTMLTableElement).rows) {
    if (cells[0]?.textContent === name) cells[1]!.textContent = value;
  }
}

/** How large a model is, with its trainer and what they compute with, and its text. */
export function showModel({ model, trainTokens, ofBytes }: Training): void {
  const { parameterCount, gpuBytes } = model;
  showRow("GPU memory of the model", bytes(gpuBytes));
  const note = byId("model-note", HTMLElement);
  note.dataset["bytes"] = String(gpuBytes);
  note.textContent =
    `${whole(parameterCount)} weights, ${bytes(gpuBytes)} on the GPU, ` +
    `${whole(trainTokens)} ${ofBytes ? "letters" : "tokens"} of text.`;
}

export const showSpeed = (tokensPerSecond: number): void =>
  showRow("tokens per second", whole(tokensPerSecond));

function group(plan: readonly PlanRow[]): PlanGroup[] {
  const groups = new Map<string, PlanGroup>();
  for (const row of plan) {
    const key = [row.phase, row.kernel, row.variant, row.workgroupSize, row.grid].join("|");
    const known = groups.get(key) ?? { row, count: 0, flops: 0, bytes: 0 };
    known.count++;
    known.flops += row.flops;
    known.bytes += row.bytes;
    groups.set(key, known);
  }
  return [...groups.values()];
}

/** The kernels of a training step. */
export function showPlan(plan: readonly PlanRow[]): void {
  const rows = group(plan).map(({ row, count, flops, bytes: moved }) =>
    tableRow(
      row.phase,
      make("code", "", row.kernel),
      row.variant,
      `${count}`,
      row.workgroupSize.join(TIMES),
      row.grid.join(TIMES),
      (flops / 1e6).toLocaleString("en", { maximumFractionDigits: 2 }),
      bytes(moved),
      make("span", "reason", row.reason),
    ),
  );
  const heads = [
    "Phase",
    "Kernel",
    "Variant",
    "Times",
    "Workgroup",
    "Grid",
    "MFLOP",
    "Memory",
    "Why",
  ];
  fill(byId("plan", HTMLTableElement), heads, rows);
  byId("plan-note", HTMLElement).textContent =
    `${plan.length} dispatches; equal ones are shown together.`;
}
