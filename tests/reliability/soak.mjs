// A soak: models and trainers are made, trained, read, saved and freed for a long time; what they held returns,
// and bits repeat. `--steps N` or `--minutes N`; by default 20,000 steps, or on a software adapter ten minutes.
import { CONFIGS } from "../../bench/workloads.mjs";
import { step } from "../../scripts/lib.mjs";
import { softwareOnly } from "../../scripts/machine.mjs";
import { withPage } from "../lanes/harness.mjs";
import { adapterName, keep } from "./results.mjs";
import { judge } from "./soak-judge.mjs";

/** Steps between a creation and its end: a hundredth of the default. */
const CYCLE = softwareOnly() ? 10 : 200;
/** Steps, or minutes on a software adapter, after which it ends. */
const [STEPS, MINUTES] = [20_000, 10];
/** Of so many cycles one is looked at for its objects, which takes the page a while: the first, and so on. */
const LOOKED_AT = softwareOnly() ? 1 : 5;
/**
 * Flags of Chromium's. V8 compiles a function again, and allocates for it, the more often it ran: the collected heap
 * then has more code after hours than after minutes. With these it compiles each function once, and allocates what it
 * notes of it then, so that what grows is the page's.
 */
const STEADY = [
  "--js-flags=--no-opt --no-maglev --no-sparkplug --no-lazy-feedback-allocation --no-flush-bytecode",
];

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
      const result = { software, seed, flags: STEADY, steps: done, seconds, wrong, cycles };
      keep("soak", "chromium", adapter, result, { short });
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
    { flags: STEADY },
  );
}
