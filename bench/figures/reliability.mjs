// The table of docs/reliability.md: what `npm run reliability` found, from its files in bench/results.
import { median, newest } from "../../tests/reliability/results.mjs";

export const HEADS = ["fault", "where", "outcome", "cost", "result"];

const seconds = (milliseconds) => `${(milliseconds / 1000).toFixed(2)} s`;
const percent = (share) => `${(100 * share).toFixed(2)} %`;
const megabytes = (bytes) => `${(bytes / 1e6).toFixed(1)} MB`;
const number = (value) => value.toLocaleString("en");

/** Begins with "not whole" where something is missing. */
const outcome = (whole, text) => (whole ? text : `**not whole**: ${text}`);

/** One row for each host that lost its device. */
function lost(part, fault) {
  return newest(part).map(({ file, date, adapter, host, how, seed, count, rows }) => {
    const whole = rows.filter(({ wrong }) => !wrong).length;
    const ended = rows.filter(({ stalled }) => !stalled);
    const amid = ended.filter(({ amid }) => amid).length;
    const repeated = Math.max(0, ...ended.map((row) => row.repeated ?? 0));
    const compiled = median(ended.map((row) => row.compiled));
    const without = median(ended.map((row) => Math.max(0, row.late - row.compiled)));
    const told =
      `${whole} of ${count} went on by themselves to the same bits, ${amid} in the midst of a call; ` +
      `${repeated} steps repeated at most`;
    return [
      fault(how, rows),
      `${host}, ${adapter}, ${date}, seed ${seed}`,
      outcome(whole === count, told),
      `median ${seconds(without)}, and ${seconds(compiled)} of compilation`,
      `\`${file}\``,
    ];
  });
}

function snapshots() {
  return newest("snapshots").flatMap(({ file, date, adapter, software, rows, wrong }) =>
    rows.map(({ name, with: turns, without, share, slower, last }) => {
      const rate = median(turns.filter(Boolean).map((turn) => turn.rate));
      const noise = software ? "; other work shares this CPU" : "";
      return [
        `snapshots of ${name}, ${megabytes(last.bytes)}`,
        `chromium, ${adapter}, ${date}`,
        outcome(
          !wrong.some((line) => line.startsWith(`${name}:`)),
          `${rate.toFixed(1)} steps per second with them, ${median(without).toFixed(1)} without: ` +
            `${percent(slower)} slower${noise}`,
        ),
        `${percent(share)} of the time by their own account`,
        `\`${file}\``,
      ];
    }),
  );
}

function soak() {
  return newest("soak").map(({ file, date, adapter, seed, steps, cycles, seconds, wrong }) => {
    const last = cycles.at(-1);
    const returned = `${number(last.gpuBytes)} bytes of the GPU left, ${megabytes(last.wasmBytes)} of wasm, `;
    const heap = `${megabytes(last.heapBytes)} of collected heap`;
    const told = wrong.length === 0 ? "levels return, and bits repeat" : wrong.join("; ");
    return [
      `${number(steps)} steps of tiny in ${cycles.length} cycles from creation to \`free()\``,
      `chromium, ${adapter}, ${date}, seed ${seed}`,
      outcome(wrong.length === 0, told),
      `${number(seconds)} s; at the end ${returned}${heap}`,
      `\`${file}\``,
    ];
  });
}

function storage() {
  return newest("storage").map(({ file, date, adapter, seed, count, whole, halfWritten }) => [
    "tab killed while it writes checkpoints",
    `chromium, ${adapter}, ${date}, seed ${seed}`,
    outcome(
      whole === count,
      `${whole} of ${count} went on from a whole checkpoint to the same losses`,
    ),
    `${halfWritten} left a half-written one`,
    `\`${file}\``,
  ]);
}

const waits = (rows) => rows.filter(({ waited }) => waited).map(({ reopened }) => reopened);

/** Every row. */
export function reliabilityRows() {
  return [
    ...lost("gpu-process", (how) => how.replaceAll(/--[\w-]+/g, "`$&`")),
    ...lost(
      "blocked",
      (_, rows) =>
        "GPU process killed twice within two minutes: Chromium gives no adapter, and calls waited " +
        `${waits(rows).map(seconds).join(" and ") || "never"}`,
    ),
    ...lost("destroy", () => "`device.destroy()` by the page"),
    ...storage(),
    ...snapshots(),
    ...soak(),
  ];
}
