// The rows of `npm run test:real`: what passes and what fails, and the steps by which weights are dithered.
// reads: tests/real
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { root } from "../../scripts/lib.mjs";
import { referencePython } from "../../scripts/reference.mjs";
import {
  chatRow,
  equalRow,
  greedyRow,
  idsRow,
  learnedRow,
  logitsRow,
  lorasRow,
  lossRow,
  table,
} from "./compare.mjs";

test("logits pass within the limit, and no NaN or missing row does", () => {
  const wanted = Float32Array.of(1, 2, 3, 4, 5, 6);
  const apart = (change) => wanted.map((value, i) => value + (i === 4 ? change : 0));
  const near = logitsRow("a", apart(5e-4), wanted, 3);
  assert.ok(near.ok && near.worst > 4e-4 && near.note.endsWith("2/2"), JSON.stringify(near));
  const other = logitsRow("a", apart(2), wanted, 3);
  assert.ok(!other.ok && other.note.endsWith("1/2"));
  assert.equal(logitsRow("a", apart(Number.NaN), wanted, 3).ok, false);
  assert.equal(logitsRow("a", wanted.slice(3), wanted, 3).ok, false);
  assert.equal(logitsRow("a", apart(-2e-3), wanted, 3).ok, false);
});

test("greedy text may part at a tie, to the second likely token alone", () => {
  const steps = [0.5, 9e-4, 0.5].map((gap, i) => ({ token: i, second: i + 10, gap }));
  assert.deepEqual(greedyRow("a", [0, 1, 2], steps).worst, 0);
  const tie = greedyRow("a", [0, 11, 7], steps);
  assert.ok(tie.ok && tie.worst === 9e-4 && /token 1 is 11 and not 1/.test(tie.note), tie.note);
  assert.equal(greedyRow("a", [0, 12, 2], steps).ok, false, "the third likely one");
  assert.equal(greedyRow("a", [0, 1, 12], steps).ok, false, "half a nat apart");
  assert.equal(greedyRow("a", [0, 1], steps).ok, false, "it ended");
});

test("losses: f32 may be neither above nor below, a format costs at most its limit", () => {
  const ok = (...given) => lossRow("a", ...given, 200).ok;
  assert.deepEqual(
    [ok("f32", 2.00009, 2), ok("f32", 1.9998, 2), ok("f16", 2.004, 2), ok("f16", 2.006, 2)],
    [true, false, true, false],
  );
  assert.deepEqual(
    [ok("int8", 2.03, 2), ok("int4", 2.3, 2), ok("int4", Number.NaN, 2)],
    [false, true, false],
  );
  assert.equal(lorasRow("a", [3, 2], [3, 2.00005]).ok, true);
  assert.equal(lorasRow("a", [3, 2], [3, 2.0002]).ok, false);
  assert.equal(lorasRow("a", [3], [3, 2]).ok, false, "a step is missing");
  assert.equal(idsRow("a", [1, 2], [1, 2]).ok, true);
  assert.equal(idsRow("a", [1, 2, 3], [1, 2]).worst, 1);
  const said = table([{ model: "m", weights: "f32", ...idsRow("ids", [1], [2]) }]);
  assert.match(said, /\| m \| f32 \| ids \| 1 ids \| 1\.0e\+0 \| 0 \| FAILED \|/);
});

test("weights of a GGUF file are dithered by half a step at most, and their grid is gone", async () => {
  const program = `import gguf, json, sys, numpy as np
from gguf.quants import dequantize, quantize
sys.argv[0] = ""
source = open("tests/real/gguf_to_hf.py").read().rsplit("\\nmain()", 1)[0]
exec(source)
Type = gguf.GGMLQuantizationType
random = np.random.default_rng(3)
weights = random.normal(size=(64, 256)).astype(np.float32)
out = []
for kind in (Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q8_0):
    kept = dequantize(quantize(weights, kind), kind)
    noisy = dithered(kept, random)
    span = np.abs(kept.reshape(-1, 16)).max(axis=1, keepdims=True)
    moved = np.abs(noisy - kept).reshape(-1, 16) / span
    out.append([moved.max().item(), (moved > 0).mean().item()])
print(json.dumps(out))`;
  const python = await referencePython();
  const said = execFileSync(python, ["-c", program], { cwd: root, encoding: "utf8" });
  // Steps in the largest value of a run: an eighth of it in Q4_0, a seventh where Q4_1 is symmetric, and so on. A run whose
  // sixteen values have no neighbours on the grid takes several steps for one: four of Q8_0's fine ones are little.
  const most = [0.25, 0.5, 0.15, 0.04];
  for (const [i, [moved, share]] of JSON.parse(said).entries()) {
    assert.ok(moved > most[i] / 100 && moved <= most[i], `${i}: moved by ${moved}`);
    assert.ok(share > 0.99, `${i}: ${share} of the weights moved`);
  }
});

test("answers of chats: prompt, tokens, text and end are the reference's, or part at a tie", () => {
  const steps = [5, 9].map((token) => ({ token, second: 7, gap: 9e-4 }));
  const wanted = [{ prompt: [1], steps, text: "a", ended: true }];
  const reference = { most: 3, ends: [9] };
  const of = (answer) => chatRow("a", answer ? [answer] : [], wanted, reference);
  const same = of({ prompt: [1], tokens: [5], pieces: ["a"] });
  assert.ok(same.ok && same.worst === 0, JSON.stringify(same));
  assert.equal(same.compared, "1 answers, 1 tokens; 1 end by themselves");
  const tie = of({ prompt: [1], tokens: [7, 7, 7], pieces: ["b"] });
  assert.ok(tie.ok && tie.worst === 9e-4 && /token 0 is 7/.test(tie.note), tie.note);
  assert.equal(of({ prompt: [2], tokens: [5], pieces: ["a"] }).ok, false, "another prompt");
  assert.equal(of({ prompt: [1], tokens: [5], pieces: ["b"] }).ok, false, "another text");
  assert.equal(of({ prompt: [1], tokens: [5, 6, 6], pieces: ["a"] }).ok, false, "no end");
  assert.equal(of({ prompt: [1], tokens: [], pieces: [] }).ok, false, "an early end");
  assert.equal(of(undefined).ok, false, "no answer");
  assert.equal(equalRow("a", ["x"], ["x", "y"]).worst, 1);
  assert.equal(learnedRow("a", ["x", "z"], ["x", "y"], [2, 1]).ok, false);
  assert.equal(learnedRow("a", ["x", "y"], ["x", "y"], [2, 1]).note, "losses 2.000 … 1.0000");
});
