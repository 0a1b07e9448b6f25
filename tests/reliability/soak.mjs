// A soak: models and trainers are made, trained, read, saved and freed for a long time; what they held returns,
// and bits repeat. `--steps N` or `--minutes N`; by default 20,000 steps, or on a software adapter ten minutes.
import { CONFIGS } from "../../bench/workloads.mjs";
import { step } from "../../scripts/lib.mjs";
import { softwareOnly } from "../../scripts/machine.mjs";
import { withPage } from "../lanes/harness.mjs";
import { adapterName, keep } from "./results.mjs";

/** Steps between a creation and its end: a hundredth of the default. */
const CYCLE = softwareOnly() ? 10 : 200;
/** Steps, or minutes on a software adapter, after which it ends. */
const [STEPS, MINUTES] = [20_000, 10];
/** Of so many cycles one is looked at for its objects, which takes the page a while: the first, and so on. */
const LOOKED_AT = softwareOnly() ? 1 : 5;
/** The share by which objects and buffers may be above the highest of the first tenth: caches of the engine. */
const HEAP_NOISE = 0.01;

/** In the page. */
async function open(base, { config, tokens }, seed) {
  const tinyloom = await import(`${base}/pkg/index.js`);
  const { runtimes } = await import(`${base}/pkg/internal.js`);
  const { Soak } = await import(`${base}/tests/reliability/soak-stage.mjs`);
  const runtime = await tinyloom.Runtime.create();
  const { counters, recovery } = runtimes.of(runtime);
  // One snapshot follows the other, so that from the first cycle on they are beside everything else.
  recovery.pace = { least: 0, share: 100 };
  globalThis.soak = new Soak(tinyloom, runtime, counters, { config, tokens, seed });
  const { adapter, software } = runtime.capabilities;
  return { adapter, software, before: counters().gpuBytes };
}

/** Bytes of the page's heap after a collection: objects, and buffers beside them. */
async function collected(session) {
  await session.send("HeapProfiler.collectGarbage");
  await session.send("HeapProfiler.collectGarbage"); // what finalisers let go
  const { usedSize, backingStorageSize = 0 } = await session.send("Runtime.getHeapUsage");
  return { heapBytes: usedSize, bufferBytes: backingStorageSize };
}

/** What the page holds by itself: neither code that the engine compiled nor what is outside of the heap. */
const OWN =
  /^(object|object shape|array|string|concatenated string|sliced string|closure|regexp|number|symbol|bigint)$/;

/** Bytes of the page's objects. The whole heap also has the engine's compiled code, which grows as it optimises. */
async function objects(session) {
  let text = "";
  const more = ({ chunk }) => {
    text += chunk;
  };
  session.on("HeapProfiler.addHeapSnapshotChunk", more);
  await session.send("HeapProfiler.takeHeapSnapshot", { reportProgress: false });
  session.off("HeapProfiler.addHeapSnapshotChunk", more);
  const { snapshot, nodes } = JSON.parse(text);
  const { node_fields: fields, node_types: types } = snapshot.meta;
  const [type, size] = [fields.indexOf("type"), fields.indexOf("self_size")];
  let sum = 0;
  for (let at = 0; at < nodes.length; at += fields.length) {
    if (OWN.test(types[type][nodes[at + type]])) sum += nodes[at + size];
  }
  return sum;
}

/** What is wrong with the cycles, if anything. Some have no `objectBytes`. */
export function judge(cycles, before) {
  const tenth = Math.max(1, Math.floor(cycles.length / 10));
  const [first, rest] = [cycles.slice(0, tenth), cycles.slice(tenth)];
  const known = (list, key) => list.map((one) => one[key]).filter((bytes) => bytes !== undefined);
  const wrong = [];
  const left = cycles.find(({ gpuBytes }) => gpuBytes !== before);
  if (left) wrong.push(`${left.gpuBytes} bytes of the GPU are left, and ${before} before`);
  const other = cycles.find(({ bits }) => bits !== cycles[0].bits);
  if (other) wrong.push(`bits differ: ${other.bits}, and at first ${cycles[0].bits}`);
  for (const [key, noise] of [
    ["wasmBytes", 0],
    ["objectBytes", HEAP_NOISE],
    ["bufferBytes", HEAP_NOISE],
  ]) {
    const [early, late] = [known(first, key), known(rest, key)];
    if (early.length === 0 || late.length === 0) {
      wrong.push(`${cycles.length} cycles are too few to compare ${key}`);
      continue;
    }
    const [was, is] = [Math.max(...early), Math.max(...late)];
    if (is > was * (1 + noise))
      wrong.push(`${key} grew from ${was} to ${is} after the first tenth`);
  }
  return wrong;
}

/** Prints a line, and keeps every cycle. */
export async function soak({ steps, minutes, seed = Date.now() % 1e6 } = {}) {
  const limit =
    minutes ?? (steps === undefined && softwareOnly() ? MINUTES : Number.POSITIVE_INFINITY);
  const enough = steps ?? (Number.isFinite(limit) ? Number.POSITIVE_INFINITY : STEPS);
  return withPage(
    "chromium",
    () => {},
    async (page, url) => {
      const session = await page.createCDPSession();
      const opened = await page.evaluate(open, url, CONFIGS.tiny, seed);
      const began = performance.now();
      const cycles = [];
      let done = 0;
      while (done < enough && performance.now() - began < 60_000 * limit) {
        const cycle = await page.evaluate((steps) => globalThis.soak.cycle(steps), CYCLE);
        done += CYCLE;
        cycles.push({ steps: done, ...cycle, ...(await collected(session)) });
        if ((cycles.length - 1) % LOOKED_AT === 0) {
          cycles.at(-1).objectBytes = await objects(session);
        }
        if (cycles.length % 10 === 1) step(`${done} steps: ${JSON.stringify(cycles.at(-1))}`);
      }
      cycles.at(-1).objectBytes ??= await objects(session);
      const wrong = judge(cycles, opened.before);
      const seconds = Math.round((performance.now() - began) / 1000);
      const { adapter, software } = opened;
      const short = software ? seconds < 60 * MINUTES : done < STEPS;
      const result = { software, seed, steps: done, seconds, wrong, cycles };
      keep("soak", adapter, result, { short });
      const last = cycles.at(-1);
      const looked = cycles.findLast(({ objectBytes }) => objectBytes);
      console.log(
        `soak: seed ${seed}, ${adapterName(adapter)}: ${done} steps in ${cycles.length} cycles and ${seconds} s; ` +
          `at the end ${last.gpuBytes} bytes of the GPU, ${last.wasmBytes} of wasm, ${looked?.objectBytes} of objects in ` +
          `${last.heapBytes} of collected heap; ${wrong.length === 0 ? "bits repeat and nothing grows after the first tenth" : "not whole"}`,
      );
      for (const line of wrong) console.log(`  ${line}`);
      return wrong.length === 0;
    },
  );
}
