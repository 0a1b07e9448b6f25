// Predicted times beside those that the benchmarks have measured. No GPU runs here.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { estimate } from "tinyloom";
import { CONFIGS } from "../../bench/workloads.mjs";
import { root } from "../../scripts/lib.mjs";

/** The measured steps: workload, tokens per step. */
const STEPS = {
  "train tiny": ["tiny", 256],
  "train mid": ["mid", 256],
  "train seed": ["seed", 512],
  "train seed x 8": ["seed", 4096],
};
const TOKENS = { "decode tiny": "tiny", "decode mid": "mid", "decode seed": "seed" };

/** Holds every step and token of a file of results to a factor of two. */
async function compare(t, file, least) {
  const text = readFileSync(join(root, "bench/results", file), "utf8");
  const { results, ...capabilities } = JSON.parse(text);
  let compared = 0;
  const hold = (workload, predicted, measured) => {
    compared++;
    const ratio = predicted / measured;
    t.diagnostic(`${workload}: ${predicted.toFixed(2)} of ${measured.toFixed(2)} ms`);
    assert.ok(ratio > 0.5 && ratio < 2, `${workload}: predicted ${ratio} of ${measured} ms`);
  };
  for (const { workload, peer = "tinyloom", milliseconds, tokensPerSecond } of results) {
    if (peer !== "tinyloom") continue;
    if (workload in STEPS) {
      const [name, tokensPerStep] = STEPS[workload];
      const options = { trainer: { tokensPerStep } };
      const predicted = await estimate(CONFIGS[name].config, options, capabilities);
      hold(workload, predicted.milliseconds.step, milliseconds);
    } else if (workload in TOKENS) {
      const { config } = CONFIGS[TOKENS[workload]];
      const predicted = await estimate(config, { generate: { tokens: 256 } }, capabilities);
      hold(workload, predicted.milliseconds.token, 1000 / tokensPerSecond);
    }
  }
  assert.ok(compared >= least, `${compared} workloads compared`);
}

test("steps and tokens on an NVIDIA H200", (t) =>
  compare(t, "2026-11-22-nvidia-h200-chromium.json", 7));

test("a step on SwiftShader", (t) =>
  compare(t, "2026-11-22-google-swiftshader-chromium-peers.json", 1));
