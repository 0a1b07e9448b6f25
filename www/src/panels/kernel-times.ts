/** The timeline of a training step's kernels, which loads when it is measured. */
import type { ProfileRow } from "tinyloom/worker";
import { byId, make, sentence } from "../dom.ts";
import type { Training } from "../training.ts";
import { fromOne } from "../words.ts";
import { showError } from "./status.ts";

const host = () => byId("timeline", HTMLElement);

/** Steps whose times are summed, since browsers round times to 100 µs; fewer where that takes long. */
const STEPS = 40;
const MILLISECONDS = 3000;
/** Operations that a GPU does while it moves a byte, about, for the cost where no times are. */
const PER_BYTE = 10;

/** Equal dispatches of a phase together. */
interface Group {
  readonly row: ProfileRow;
  /** Index of its first row in the plan. */
  readonly index: number;
  count: number;
  cost: number;
}

/** Times of each row, summed over several steps; undefined where there are no timestamps. */
interface Measured {
  readonly rows: readonly ProfileRow[];
  readonly microseconds: readonly number[] | undefined;
  readonly steps: number;
}

async function measure(training: Training): Promise<Measured> {
  const began = performance.now();
  const rows = await training.profile();
  if (rows.every((row) => row.gpuMicroseconds === undefined)) {
    return { rows, microseconds: undefined, steps: 0 };
  }
  const sums = rows.map((row) => row.gpuMicroseconds ?? 0);
  let steps = 1;
  while (steps < STEPS && performance.now() - began < MILLISECONDS) {
    for (const [at, row] of (await training.profile()).entries()) {
      sums[at] = (sums[at] ?? 0) + (row.gpuMicroseconds ?? 0);
    }
    steps++;
  }
  return { rows, microseconds: sums, steps };
}

/** The rows of a phase in the order of the step, equal kernels together. */
function grouped({ rows, microseconds, steps }: Measured, phase: string): Group[] {
  const groups = new Map<string, Group>();
  for (const [index, row] of rows.entries()) {
    if (row.phase !== phase) continue;
    const key = [row.kernel, row.variant, row.workgroupSize, row.grid].join("|");
    const group = groups.get(key) ?? { row, index, count: 0, cost: 0 };
    group.count++;
    group.cost += microseconds
      ? microseconds[index]! / steps
      : Math.max(row.bytes, row.flops / PER_BYTE);
    groups.set(key, group);
  }
  return [...groups.values()];
}

/** A kernel's text with its blocks indented: the module carries it without that. */
function indented(wgsl: string): string {
  let depth = 0;
  const lines = wgsl.split("\n").map((line) => {
    const closing = /^[)\]}]*/.exec(line)![0].length;
    const shown = "  ".repeat(Math.max(0, depth - closing)) + line;
    for (const sign of line) depth += "([{".includes(sign) ? 1 : ")]}".includes(sign) ? -1 : 0;
    return line === "" ? line : shown;
  });
  return lines.join("\n");
}

/**
 * Measures a step of a training, and shows its kernels.
 *
 * @param where - which processor computes.
 * @returns what is said of them.
 */
export async function showKernels(training: Training, where: string): Promise<string> {
  const measured = await measure(training);
  const phases = [...new Set(measured.rows.map(({ phase }) => phase))];
  const bars = phases.map((phase) => ({ phase, groups: grouped(measured, phase) }));
  const cost = (groups: readonly Group[]) => groups.reduce((sum, one) => sum + one.cost, 0);
  const whole = cost(bars.flatMap(({ groups }) => groups));
  const timed = measured.microseconds !== undefined;
  const note = timed
    ? `${(whole / 1000).toFixed(2)} ms ${where}, the mean of ${measured.steps} steps. Choose a kernel.`
    : "Estimated cost: this browser gives no timestamps. It is the bytes that a kernel moves, or a tenth of its " +
      "operations where that is more. Choose a kernel.";
  let before = 0;
  host().replaceChildren(
    ...bars.map(({ phase, groups }) => {
      const share = (100 * cost(groups)) / whole;
      const bar = make("div", "share-of-step");
      bar.style.setProperty("--width", `${share}%`);
      bar.style.setProperty("--before", `${before}%`);
      before += share;
      const kernels = groups.map((group) => segment(training, group, whole, timed));
      const title = make("h3", "", `${phase}, ${share.toFixed(0)} %`);
      return make("div", "phase", title, bar, make("div", "bar-of-kernels", ...kernels));
    }),
  );
  return note;
}

function segment(training: Training, group: Group, whole: number, timed: boolean): HTMLElement {
  const { row, count, cost } = group;
  const time = timed ? `${cost.toFixed(0)} µs, ` : "";
  const times = count === 1 ? "once" : `${count} times`;
  const what = `${row.kernel}, ${times}: ${time}${((100 * cost) / whole).toFixed(1)} %`;
  const button = make("button", "segment", row.kernel);
  button.type = "button";
  button.title = what;
  button.setAttribute("aria-label", what);
  button.style.flexGrow = String(cost);
  button.addEventListener("click", () => {
    for (const one of host().querySelectorAll(".segment")) one.removeAttribute("aria-current");
    button.setAttribute("aria-current", "true");
    explain(training, group, what).catch(showError);
  });
  return button;
}

async function explain(training: Training, { row, index }: Group, what: string): Promise<void> {
  const text = await training.wgsl(index);
  byId("kernel-title", HTMLElement).textContent = `${row.kernel}, ${row.variant}`;
  byId("kernel-reason", HTMLElement).textContent =
    `${sentence(fromOne(row.label))} ${what}. ${sentence(row.reason)} Workgroups of ${row.workgroupSize.join(" × ")}, ${row.grid.join(" × ")} of them.`;
  byId("wgsl", HTMLElement).textContent = indented(text);
  byId("kernel", HTMLElement).hidden = false;
}
