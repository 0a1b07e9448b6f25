// The table of docs/reliability.md: what `npm run reliability` found, from its files in bench/results.
import { adapterName, median, newest } from "../../tests/reliability/results.mjs";
import { judge } from "../../tests/reliability/soak-judge.mjs";

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

/** One row for each host whose devices were lost for good. */
function losses() {
  return newest("losses").map(({ file, date, host, adapter, seed, count, rows }) => {
    const right = rows.filter(({ wrong }) => !wrong).length;
    const failed = rows.filter(({ how }) => how === "with a map that fails").length;
    const living = rows.filter((row) => row.living !== undefined).length;
    return [
      "`device.destroy()`, without recovery",
      `${host}, ${adapter}, ${date}, seed ${seed}`,
      outcome(
        right === count,
        `${right} of ${count} gave \`device-lost\`, ${failed} of them through a map that failed; ${living} maps ` +
          "that failed on a living device gave `internal`",
      ),
      "–",
      `\`${file}\``,
    ];
  });
}

function snapshots() {
  return newest("snapshots").flatMap(({ file, date, adapter, rows, wrong }) =>
    rows.map(({ name, pairs, bytes, cost, due, share, error, own }) => [
      `snapshots of ${name}, ${megabytes(bytes)}`,
      `chromium, ${adapter}, ${date}`,
      outcome(
        !wrong.some((line) => line.startsWith(`${name}:`)),
        `${percent(share)} ± ${percent(error)} of the time in ${pairs.length} pairs of turns with one and without`,
      ),
      `one costs ${cost.toFixed(1)} ms every ${seconds(due)}; by their own account ${percent(own)}`,
      `\`${file}\``,
    ]),
  );
}

function soak() {
  return newest("soak").map(({ file, date, adapter, seed, steps, cycles, seconds }) => {
    const wrong = judge(cycles, 0); // older results did not judge the whole heap
    const last = cycles.at(-1);
    const returned = `${number(last.gpuBytes)} bytes of the GPU left, ${megabytes(last.wasmBytes)} of wasm, `;
    const objects = cycles.findLast((cycle) => cycle.objectBytes)?.objectBytes;
    const heap = `${megabytes(objects ?? last.heapBytes)} of ${objects ? "objects" : "collected heap"}`;
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

/** One row for each host and fault of stored runs. */
function stored() {
  return newest("stored").flatMap(({ file, date, host, adapter, seed, rows }) =>
    [...new Set(rows.map(({ fault }) => fault))].map((fault) => {
      const own = rows.filter((row) => row.fault === fault);
      const good = own.filter(({ wrong }) => !wrong).length;
      const places = new Set(own.map((row) => row.file.replace(/^c\d+\//, ""))).size;
      const what = fault === "two tabs" ? "were refused" : "told, and a whole checkpoint went on";
      return [
        `${fault} of a stored run, at each of ${places} ${fault === "two tabs" ? "calls" : "files"}`,
        `${host}, ${adapter}, ${date}, seed ${seed}`,
        outcome(good === own.length, `${good} of ${own.length} ${what}`),
        "–",
        `\`${file}\``,
      ];
    }),
  );
}

function fuzz() {
  return newest("fuzz").flatMap(({ file, date, rows }) =>
    rows.map(({ target, seeds, seed, seconds: time, executed, coverage, wrong }) => [
      `fuzzed input: ${target}`,
      `native, ${date}, seed ${seed}, from ${seeds.length} files in \`fuzz/seeds\``,
      outcome(
        wrong.length === 0,
        `${number(executed)} inputs: no panic, hang or large allocation${wrong.length > 0 ? " but " : ""}` +
          `${wrong.map((one) => one.split(":")[0]).join("; ")}`,
      ),
      `${number(time)} s, ${number(coverage)} edges covered`,
      `\`${file}\``,
    ]),
  );
}

function hostile() {
  return newest("hostile").map(({ file, date, adapter, seed, count, whole, results }) => [
    `${number(count)} damaged files and ${number(count)} calls with nonsense`,
    `node, ${adapter ?? "adapter not noted"}, ${date}, seed ${seed}`,
    outcome(
      whole,
      `${results.reduce((sum, { findings }) => sum + findings.length, 0)} panics, hangs, \`internal\` or silent changes`,
    ),
    "–",
    `\`${file}\``,
  ]);
}

function memory() {
  return newest("memory").map(({ file, date, host, adapter, how, filled, wrong }) => [
    `memory that ends: ${how}`,
    `${host}, ${adapter}, ${date}`,
    outcome(
      wrong.length === 0,
      wrong.length === 0
        ? "`out-of-memory` with bytes and settings; nothing half-built stays, and training goes on to the same bits"
        : wrong.join("; "),
    ),
    `full after ${megabytes(filled ?? 0)}`,
    `\`${file}\``,
  ]);
}

/** A row each for the save and the load of a large model. */
function large() {
  return newest("large").flatMap(({ file, date, host, adapter, rows, wrong }) =>
    rows.map(({ work, bytes, beyond, seconds }) => [
      `${work} of a model of ${(bytes / 1e9).toFixed(2)} GB`,
      `${host}, ${adapter}, ${date}`,
      outcome(wrong.length === 0, `${megabytes(beyond)} of memory beyond the GPU's`),
      `${seconds.toFixed(1)} s`,
      `\`${file}\``,
    ]),
  );
}

/** Caps on limits: the cells themselves are in the browsers' guide. */
function limits() {
  return newest("limits").flatMap(({ file, date, seed, results }) =>
    results.map(({ host, capabilities, rows }) => {
      const count = (wanted) => rows.filter(({ result }) => result === wanted).length;
      const [without, wrong] = [count("no effect"), count("wrong")];
      const left = without > 0 ? `; ${without} caps have no effect on this adapter` : "";
      return [
        "caps on limits, alone and together",
        `${host}, ${adapterName(capabilities.adapter)}, ${date}, seed ${seed}`,
        outcome(
          wrong === 0,
          `of ${rows.length} cells ${count("trains")} train and ${count("refused")} are refused, ${wrong} are wrong${left}`,
        ),
        "–",
        `\`${file}\``,
      ];
    }),
  );
}

/** What each part is called where it has no result yet. */
const NAMES = {
  "gpu-process": "GPU process killed",
  blocked: "GPU process killed twice within two minutes",
  destroy: "`device.destroy()` by the page",
  storage: "tab killed while it writes checkpoints",
  stored: "faults of a stored run",
  snapshots: "what snapshots cost",
  memory: "memory that ends",
  hostile: "damaged files and calls with nonsense",
  fuzz: "fuzzed input",
  limits: "caps on limits",
  soak: "soak",
};

const missing = () =>
  Object.entries(NAMES)
    .filter(([part]) => newest(part).length === 0)
    .map(([part, name]) => [name, "–", outcome(false, "not run"), "–", `\`-- ${part}\``]);

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
    ...losses(),
    ...storage(),
    ...stored(),
    ...snapshots(),
    ...memory(),
    ...large(),
    ...hostile(),
    ...fuzz(),
    ...limits(),
    ...soak(),
    ...missing(),
  ];
}
