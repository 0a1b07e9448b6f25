// The loom's own forward pass: beside the package's on the same weights, with heads cut, in 16 bits, and on the
// recording that the page plays. What is kept of a run.
// reads: www tests/page/loom-node.mjs tests/page/page-module.mjs
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { test } from "node:test";
import { root } from "../../scripts/lib.mjs";
import { dawnEnv } from "../../scripts/machine.mjs";
import { pageModule } from "./page-module.mjs";

const { Player } = await pageModule("src/loom/player");
const { Snapshot, Track } = await pageModule("src/loom/track");
const { meanAt } = await pageModule("src/mean");
const { narrowed, sizeOf, weavable, widened } = await pageModule("src/loom/weights");

const SMALL = {
  hidden_size: 32,
  intermediate_size: 64,
  num_hidden_layers: 1,
  num_attention_heads: 2,
};
/** Bytes that the recording may take. */
const RECORDING = 1e6;
/** How far a logit may be from the package's. */
const NEAR = 1e-3;

test("the loom's pass gives the package's logits, captures and lens, also with heads cut", {
  timeout: 300_000,
}, (t) => {
  const { status, stdout, stderr } = spawnSync(
    process.execPath,
    [join(root, "tests/page/loom-node.mjs")],
    { encoding: "utf8", env: { ...process.env, ...dawnEnv() } },
  );
  assert.equal(status, 0, stderr);
  t.diagnostic(stdout.trim());
  const { shapes, recording } = JSON.parse(stdout.trim().split("\n").at(-1));
  for (const [at, one] of shapes.entries()) {
    const { apart, logits, heads, both, shares, states, said, columns, given, far } = one;
    assert.equal(apart, 0, `model ${at}: weights that the package rounds to other halves`);
    assert.deepEqual([columns, given], [18, 13], `model ${at}: what the fine-tune panel weaves`);
    assert.ok(far < NEAR, `model ${at}: what the fine-tune panel weaves differs by ${far}`);
    assert.ok(logits < NEAR, `model ${at}: logits differ by ${logits}`);
    assert.ok(heads < NEAR, `model ${at}, heads cut: logits differ by ${heads}`);
    assert.ok(shares < NEAR, `model ${at}: shares differ by ${shares}`);
    assert.ok(states < NEAR, `model ${at}: states differ by ${states}`);
    assert.equal(said, 0, `model ${at}: guesses behind layers that differ from the package's lens`);
    assert.ok(both > 10 * NEAR, `model ${at}: cut heads make a difference, of ${both}`);
  }
  const { questions, logits, differ, said, halves, bytes, right } = recording;
  assert.equal(questions, 128);
  assert.ok(logits < NEAR, `the recording's logits differ by ${logits}`);
  assert.equal(differ, 0, "answers that differ from the package's");
  assert.equal(said, 0, "answers that differ from what the recording says of itself");
  assert.ok(halves <= 1, `in 16 bits ${halves} answers differ`);
  assert.ok(bytes < RECORDING, `${bytes} bytes`);
  assert.equal(right[0], 0);
  assert.ok(right.at(-1) >= 0.98 * questions, `${right.at(-1)} right at the end`);
});

test("a number of 16 bits is the nearest one", () => {
  const exact = widened(Uint16Array.from({ length: 0x7c01 }, (_, at) => at));
  assert.deepEqual([exact[0], exact[1], exact[0x3c00], exact[0x7bff]], [0, 2 ** -24, 1, 65504]);
  assert.equal(exact[0x7c00], Number.POSITIVE_INFINITY);
  for (const value of [0, 1, -1, 0.1, -3.375, 1e-3, 6.1e-5, 5e-8, 2049, 65519, 1e-9, -0.333]) {
    const [near] = widened(narrowed(Float32Array.of(value)));
    const f32 = Math.fround(value);
    const wanted = Math.min(...exact.slice(0, -1).map((one) => Math.abs(one - Math.abs(f32))));
    assert.ok(Math.abs(Math.abs(near) - Math.abs(f32)) <= wanted + 1e-12, `${value}: ${near}`);
    assert.ok(near === 0 || Math.sign(near) === Math.sign(value), `${value}: ${near}`);
  }
});

test("weights that 16 bits do not hold are left out, and a failed save is told", async () => {
  const { halfFile } = await pageModule("src/loom/half-file");
  const asked = [];
  const save = async (options) => {
    asked.push(options);
    return { "model.safetensors": "bytes" };
  };
  assert.equal(await halfFile({ save }), "bytes");
  assert.deepEqual(asked, [{ dtype: "f16" }]);
  const failing = (code) => ({ save: () => Promise.reject(Object.assign(Error(code), { code })) });
  assert.equal(await halfFile(failing("invalid-options")), undefined);
  await assert.rejects(halfFile(failing("device-lost")), /device-lost/);
});

test("a run's snapshots take at most 64 MB, and those that stay are spread over it", () => {
  const shape = weavable({
    hidden_size: 128,
    intermediate_size: 384,
    num_hidden_layers: 4,
    num_attention_heads: 4,
    tie_word_embeddings: true,
  });
  const about = { task: undefined, name: "a text", steps: 4000, questions: [], example: "" };
  const track = new Track(about);
  const numbers = new Uint16Array(sizeOf(shape));
  for (let step = 0; step <= 600; step++) {
    if (track.due(step)) track.add(new Snapshot(step, shape, numbers));
  }
  const steps = track.snapshots.map((one) => one.step);
  const bytes = track.snapshots.reduce((sum, one) => sum + one.bytes, 0);
  assert.ok(bytes <= 64e6, `${bytes} bytes`);
  assert.ok(bytes > 24e6, `${bytes} bytes`);
  assert.equal(steps[0], 0);
  assert.ok(steps.at(-1) > 560);
  const gaps = steps.slice(1).map((step, at) => step - steps[at]);
  assert.ok(Math.max(...gaps) < 60, `gaps of ${gaps}`);
  assert.equal(
    track.upTo(300).step,
    steps.findLast((step) => step <= 300),
  );
});

test("a long run of a large model is seen in five weaves a second, of which those stay that are spread over it", () => {
  const track = new Track({ task: "reverse", name: "reverse", steps: 20_000, questions: [] });
  const snapshot = (step) => ({ step, bytes: 1.6e6, marks: new Map(), asked: step % 700 === 0 });
  track.add(snapshot(0));
  const seen = [];
  // 44 steps a second.
  for (let step = 1; step <= 5000; step++) {
    const now = 23 * step;
    if (!track.due(step, now - (seen.at(-1) ?? 0))) continue;
    track.add(snapshot(step));
    seen.push(now);
    assert.ok(track.snapshots.length * 1.6e6 <= 64e6);
    assert.equal(track.newest, step, "the newest is there");
  }
  for (let from = 0; from + 1000 <= 5000 * 23; from += 1000) {
    const count = seen.filter((now) => now >= from && now < from + 1000).length;
    assert.ok(count >= 4, `${count} in the second from ${from} ms on`);
  }
  const steps = track.snapshots.map(({ step }) => step);
  assert.ok(steps.length > 15, `${steps} stay`);
  const gaps = steps.slice(1, -8).map((step, at) => step - steps[at]);
  assert.ok(Math.max(...gaps) < 1000, `gaps of ${gaps}`);
  // What was asked of late stays between those that are spread.
  const late = new Track({ task: "reverse", name: "reverse", steps: 20_000, questions: [] });
  for (let step = 0; step <= 4000; step += 40) late.add(snapshot(step));
  const before = late.snapshots.length;
  const asked = { ...snapshot(4009), asked: true };
  for (const one of [snapshot(4005), asked, snapshot(4014)]) late.add(one);
  for (let step = 4020; step < 4100; step += 9) late.add(snapshot(step));
  const last = late.snapshots.map(({ step }) => step).filter((step) => step > 4000 && step < 4020);
  assert.deepEqual([before > 15, last], [true, [4009]]);
});

test("a quick run is shown over twelve seconds, and a slow one as it comes", (t) => {
  t.mock.timers.enable({ apis: ["setInterval", "Date"] });
  globalThis.document = { hidden: false };
  t.after(() => delete globalThis.document);
  const shape = weavable(SMALL);
  const numbers = new Uint16Array(sizeOf(shape));
  const about = { task: "reverse", name: "reverse", steps: 600, questions: [], example: "" };
  const quick = new Track(about);
  for (let step = 0; step <= 600; step += 2) quick.add(new Snapshot(step, shape, numbers));
  quick.end();
  const player = new Player(
    () => undefined,
    () => undefined,
  );
  player.go(quick, 0);
  // In small steps: the mocked clock stands still within one of them.
  const seconds = (count) => {
    for (let tick = 0; tick < 20 * count; tick++) t.mock.timers.tick(50);
  };
  seconds(1);
  assert.ok(player.at > 0 && player.at < 30, `step ${player.at} after a second`);
  seconds(10.5);
  assert.ok(player.playing && player.at < 600, `step ${player.at} after 11.5 s`);
  seconds(1.5);
  assert.deepEqual([player.playing, player.at], [false, 600]);
  player.toggle();
  player.speed = 4;
  seconds(3.5);
  assert.deepEqual([player.playing, player.at], [false, 600], "at four times the speed");
  const slow = new Track(about);
  slow.add(new Snapshot(0, shape, numbers));
  player.speed = 1;
  player.go(slow, 0);
  for (let step = 1; step < 40; step++) {
    slow.add(new Snapshot(step, shape, numbers));
    seconds(2);
    assert.equal(player.at, step, "no step is waited for that is there");
  }
  assert.ok(player.playing, "it waits for more");
});

test("steps that are done twice replace what came before", () => {
  const about = { task: "reverse", name: "reverse", steps: 10, questions: [], example: "" };
  const track = new Track(about);
  for (const step of [1, 2, 3, 2, 3, 4]) track.learn(step, step / 10);
  assert.deepEqual(
    track.losses.map(([step]) => step),
    [1, 2, 3, 4],
  );
});

test("the curve is the same mean without lag as that of the learning panel", () => {
  const about = { task: "reverse", name: "reverse", steps: 40, questions: [], example: "" };
  const track = new Track(about);
  const losses = Array.from({ length: 40 }, (_, at) => 5 - at / 10 + Math.sin(at));
  for (const [at, loss] of losses.entries()) track.learn(at + 1, loss);
  assert.deepEqual(
    track.curve(40),
    losses.map((_, at) => [at + 1, meanAt(losses, at)]),
  );
  assert.deepEqual(track.curve(10).at(-1), [37, meanAt(losses, 36)]);
});

test("models that the pass does not know are not woven", () => {
  assert.ok(weavable(SMALL));
  for (const other of [
    { model_type: "gpt2" },
    { hidden_act: "gelu" },
    { vocab_size: 4096 },
    { hidden_size: 2048 },
    { rope_scaling: { rope_type: "linear", factor: 2 } },
  ]) {
    assert.equal(weavable({ ...SMALL, ...other }), undefined, JSON.stringify(other));
  }
});
