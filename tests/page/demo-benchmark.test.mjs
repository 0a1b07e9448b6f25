// The demo's benchmark button gives the rows of `npm run bench`, by the same code; what does not fit has a reason. On a
// package whose clock is the test's.
// reads: www bench
import assert from "node:assert/strict";
import { join } from "node:path";
import { afterEach, beforeEach, test } from "node:test";
import { build } from "esbuild";
import { newest } from "../../bench/figures/sources.mjs";
import { runAll } from "../../bench/workloads.mjs";
import { root } from "../../scripts/lib.mjs";

// In one piece: it imports the workloads when it is called.
const bundle = await build({
  entryPoints: [join(root, "www", "src", "benchmark.ts")],
  bundle: true,
  format: "esm",
  write: false,
});
const code = Buffer.from(bundle.outputFiles[0].contents).toString("base64");
const { measureAll } = await import(`data:text/javascript;base64,${code}`);

const own = performance.now;
let clock;
beforeEach(() => {
  clock = 0;
  performance.now = () => clock;
  const value = { userAgent: "a browser", deviceMemory: 4 };
  Object.defineProperty(globalThis, "navigator", { value, configurable: true });
});
afterEach(() => {
  performance.now = own;
});

/** A package whose steps and tokens take milliseconds that follow from the model's width. */
function fake({ software = false, needed = () => ({ total: 1e6, step: 10 }) } = {}) {
  const about = { vendor: "maker", architecture: "fast", device: "", description: "" };
  const capabilities = {
    adapter: about,
    software,
    features: { subgroups: true },
    subgroupSize: [32, 32],
    limits: { maxBufferSize: 1 },
  };
  const models = new Set();
  const runtime = { capabilities, device: { features: new Set() }, destroy() {} };
  const Model = {
    async create(_, { hidden_size: width }) {
      const model = {
        width,
        parameterCount: width ** 2,
        gpuBytes: 16 * width ** 2,
        free: () => models.delete(model),
        async *generate(_, { maxTokens }) {
          clock += width;
          for (let token = 0; token < maxTokens; token++) {
            clock += width / 64;
            yield { token };
          }
        },
      };
      models.add(model);
      return model;
    },
  };
  const Trainer = {
    async create({ width }, { tokensPerStep }) {
      let loss = 6;
      const step = async (milliseconds) => {
        clock += milliseconds;
        loss *= 0.99;
        return { loss, tokens: tokensPerStep };
      };
      return {
        step: () => step(width / 4),
        async *run(_, { steps }) {
          for (let at = 0; at < steps; at++) yield step(width / 8);
        },
        plan: async () => Array.from({ length: 67 }),
      };
    },
  };
  const Dataset = { fromTokens: async (ids) => ids };
  const estimate = async ({ hidden_size: width }) => {
    const { total, step } = needed(width);
    return { bytes: { total }, milliseconds: { step } };
  };
  const Runtime = { create: async () => runtime };
  return { Runtime, Model, Trainer, Dataset, runtime, estimate, models };
}

const measure = (lab) => measureAll(lab, lab.runtime, () => {});

test("its rows are those of npm run bench", async () => {
  const heard = [];
  const lab = fake();
  const report = await measureAll(lab, lab.runtime, (rows, next) =>
    heard.push([rows.length, next]),
  );
  const { results: bench, ...head } = await runAll(async () => fake(), undefined, {});
  const wanted = ["tiny", "mid", "seed"].flatMap((name) => [`train ${name}`, `decode ${name}`]);
  assert.deepEqual(
    report.results.map(({ workload }) => workload),
    wanted,
  );
  for (const row of report.results) {
    assert.deepEqual(
      row,
      bench.find(({ workload }) => workload === row.workload),
    );
    assert.ok(row.tokensPerSecond > 0);
  }
  for (const field of Object.keys(head)) assert.deepEqual(report[field], head[field], field);
  assert.deepEqual(heard, [...wanted.entries(), [wanted.length, undefined]]);
  assert.equal(lab.models.size, 0, "models that are left");
});

test("its rows have the fields of the project's results", async () => {
  const { results } = newest("models").results;
  const report = await measure(fake());
  // What a device without timestamps cannot tell.
  const ofDevice = ["shareOfPeak", "shareOfCopy", "profile"];
  for (const row of report.results) {
    const known = Object.keys(results.find(({ workload }) => workload === row.workload));
    const fields = known.filter((field) => !ofDevice.includes(field));
    assert.deepEqual(Object.keys(row).sort(), fields.sort(), row.workload);
  }
});

test("what does not fit is skipped, with the reason", async () => {
  const needed = (width) => ({ total: width > 700 ? 1e12 : 1e6, step: width > 300 ? 60_000 : 10 });
  const { results } = await measure(fake({ software: true, needed }));
  const said = results.map(({ workload, skipped = "measured" }) => `${workload}: ${skipped}`);
  const memory = "needs 1,000 GB, and this page takes at most 2.1 GB";
  assert.deepEqual(said, [
    "train tiny: measured",
    "decode tiny: measured",
    "train mid: would take about 12:00 min on this adapter",
    "decode mid: would take about 12:00 min on this adapter",
    `train seed: ${memory}`,
    `decode seed: ${memory}`,
  ]);
});
