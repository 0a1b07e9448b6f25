// 200 MB of text become a dataset in less than 600 MB of memory, by bytes and by byte-pair encoding.
// reads: tests/text/text-memory.mjs
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { closeSync, mkdirSync, openSync, rmSync, writeFileSync, writeSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { target } from "../../scripts/lib.mjs";
import { longTest } from "../gate/core.mjs";
import { numbers } from "../random.mjs";

const SIZE = 200_000_000;
const MOST = 600_000_000;
const folder = join(target, "text-memory");
const file = join(folder, "text.txt");
/** The lines of the text, each once. */
let sample = "";

/** Words of many kinds, a new order of them on each line. */
function line(random) {
  const syllables = ["ka", "lo", "mi", "ren", "su", "ta", "vo", "wen", "д", "ж", "語", "é"];
  const word = () =>
    Array.from({ length: 1 + (random() % 4) }, () => syllables[random() % syllables.length]).join(
      "",
    );
  return `${Array.from({ length: 8 + (random() % 12) }, word).join(" ")} ${random() % 10_000}.\n`;
}

before(async () => {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(join(folder, "tokenizer"), { recursive: true });
  const next = numbers(7);
  const random = () => Math.floor(next() * 2 ** 24);
  // Two megabytes of lines, again and again in another order.
  const lines = Array.from({ length: 20_000 }, () => line(random));
  const handle = openSync(file, "w");
  for (let written = 0; written < SIZE; ) {
    const piece = Array.from({ length: 20_000 }, () => lines[random() % lines.length]).join("");
    const bytes = Buffer.from(piece);
    written += writeSync(handle, bytes, 0, Math.min(bytes.length, SIZE - written));
  }
  closeSync(handle);
  sample = lines.join("");
});
after(() => rmSync(folder, { recursive: true, force: true }));

/** A tokenizer trained on the lines, in a folder. */
async function trainTokenizer() {
  const { BpeTokenizer } = await import("tinyloom");
  const tokenizer = await BpeTokenizer.train(sample, { vocabSize: 4000 });
  for (const [name, bytes] of Object.entries(tokenizer.save())) {
    writeFileSync(join(folder, "tokenizer", name), bytes);
  }
}

async function measured(t, ...args) {
  const program = fileURLToPath(new URL("text-memory.mjs", import.meta.url));
  const { stdout } = await promisify(execFile)(process.execPath, [program, file, ...args]);
  const { tokens, seconds, peak } = JSON.parse(stdout);
  const mb = (bytes) => `${Math.round(bytes / 1e6)} MB`;
  t.diagnostic(`${tokens} tokens in ${seconds.toFixed(1)} s, peak of the process ${mb(peak)}`);
  assert.ok(peak < MOST, `${mb(peak)} at the peak, and at most ${mb(MOST)} are allowed`);
  return tokens;
}

test("200 MB of text by bytes", { timeout: 600_000 }, async (t) => {
  assert.equal(await measured(t), SIZE);
});

async function byPairs(t) {
  await trainTokenizer();
  const tokens = await measured(t, join(folder, "tokenizer"));
  assert.ok(tokens > SIZE / 12 && tokens < SIZE / 2, `${tokens} tokens`);
}
longTest("200 MB of text by byte-pair encoding", { timeout: 600_000 }, byPairs);
