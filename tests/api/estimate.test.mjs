// Predicted times beside those that the benchmarks have measured. No GPU runs here.
// reads: docs/guides/adapters.md#tables bench/results
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { estimate } from "tinyloom";
import { documentWithEstimates, FINE_TUNING } from "../../bench/figures/estimates.mjs";
import { newest } from "../../bench/figures/sources.mjs";
import { CONFIGS } from "../../bench/workloads.mjs";
import { root } from "../../scripts/lib.mjs";
import { MODELS, tensorsOf } from "../../scripts/random-checkpoint.mjs";

/** The measured steps: workload, tokens per step, precision. */
const STEPS = {
  "train tiny": ["tiny", 256],
  "train mid": ["mid", 256],
  "train seed": ["seed", 512],
  "train seed x 8": ["seed", 4096],
  "train seed mixed": ["seed", 512, "mixed"],
  "train seed x 8 mixed": ["seed", 4096, "mixed"],
};
/** The measured tokens: workload, how the weights are held. */
const TOKENS = {
  "decode tiny": ["tiny"],
  "decode mid": ["mid"],
  "decode seed": ["seed"],
  "decode seed f16": ["seed", "f16"],
  "decode seed int8": ["seed", "int8"],
  "decode seed int4": ["seed", "int4"],
};
/** What an H200 multiplies in a subgroup: results say that it does, and not what. */
const MATRICES = [{ componentType: "f16", resultComponentType: "f32", M: 16, N: 16, K: 16 }];

/** Holds every step and token of a file of results to a factor. */
async function compare(t, file, least, factor) {
  const text = readFileSync(join(root, "bench/results", file), "utf8");
  const { results, ...capabilities } = JSON.parse(text);
  if (capabilities.features?.subgroupMatrix) capabilities.subgroupMatrixConfigs = MATRICES;
  let compared = 0;
  const hold = (workload, predicted, measured) => {
    compared++;
    const ratio = predicted / measured;
    t.diagnostic(`${workload}: ${predicted.toFixed(2)} of ${measured.toFixed(2)} ms`);
    assert.ok(
      ratio > 1 / factor && ratio < factor,
      `${workload}: predicted ${ratio} of ${measured} ms`,
    );
  };
  for (const { workload, peer = "tinyloom", milliseconds, tokensPerSecond } of results) {
    if (peer !== "tinyloom") continue;
    if (workload in STEPS) {
      const [name, tokensPerStep, precision = "f32"] = STEPS[workload];
      const options = { trainer: { tokensPerStep, precision } };
      const predicted = await estimate(CONFIGS[name].config, options, capabilities);
      hold(workload, predicted.milliseconds.step, milliseconds);
    } else if (workload in TOKENS) {
      const [name, weights = "f32"] = TOKENS[workload];
      const options = { weights, generate: { tokens: 256 } };
      const predicted = await estimate(CONFIGS[name].config, options, capabilities);
      hold(workload, predicted.milliseconds.token, 1000 / tokensPerSecond);
    }
  }
  assert.ok(compared >= least, `${compared} workloads compared`);
}

test("the table of docs/guides/adapters.md is what estimate() gives", async () => {
  const { text, wanted } = await documentWithEstimates({ estimate });
  assert.ok(text.includes("<!-- estimates -->"), "there is no table");
  assert.equal(text, wanted, "run npm run figures");
});

test("an adapter on Qwen3-0.6B in int4 takes less than 2 GB", async (t) => {
  const options = { ...FINE_TUNING, weights: "int4" };
  const { bytes, parameters } = await estimate(MODELS["Qwen3-0.6B"], options);
  t.diagnostic(JSON.stringify(bytes));
  assert.equal(parameters, 596_049_920);
  assert.ok(bytes.total < 2e9, `${bytes.total} bytes`);
});

test("scripts/random-checkpoint.mjs writes as many weights as the models have", async () => {
  for (const [name, config] of Object.entries(MODELS)) {
    const { parameters } = await estimate(config, {});
    const sizes = tensorsOf(config).map(([, shape]) => shape.reduce((all, n) => all * n, 1));
    assert.equal(
      sizes.reduce((sum, size) => sum + size),
      parameters,
      name,
    );
  }
});

test("steps and tokens on an NVIDIA H200, with subgroup matrices and without", async (t) => {
  await compare(t, newest("models").file, 12, 1.5);
  await compare(t, newest("models-matrices").file, 12, 1.5);
});

test("a step of tiny and one of mid on SwiftShader", async (t) => {
  await compare(t, "chromium-google-swiftshader/2026-11-22-peers.json", 1, 2);
  await compare(t, "node-google-swiftshader/2026-11-24-models-mid.json", 1, 2);
});
