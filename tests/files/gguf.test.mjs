// Files for llama.cpp, with llama.cpp: small trained models in every type, compared tensor by tensor with what
// Python's `gguf` makes of the weights, and token by token with what wllama computes of the files in Chromium.
// reads: tests/reference tests/files/gguf
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { launch, openPage } from "../../scripts/browser.mjs";
import { root, target } from "../../scripts/lib.mjs";
import { referencePython } from "../../scripts/reference.mjs";
import { serve } from "../../scripts/server.mjs";
import { told } from "../child.mjs";
import { coreOf } from "../gate/core.mjs";
import { MODELS, PROMPT, TEXTS, TYPES } from "./gguf/models.mjs";

const { familyOf } = await import("../../pkg/dist/gguf/families.js");
const { ggufOf } = await import("../../pkg/dist/gguf/index.js");

const folder = join(target, "gguf");
/** The core has the first. */
const models = Object.keys(MODELS);
const names = coreOf(models, models.length);
/** What was read of each model's files. */
const readBack = {};
/** Tokens that are compared. */
const TOKENS = 64;
/**
 * How far log-probabilities may be apart. llama.cpp rounds a row of inputs to the type that it multiplies a matrix
 * in: to halves, or to blocks of 8 bits. In f32 both compute the same.
 */
const APART = { f32: 1e-4, f16: 2e-3, q8_0: 2e-2, q4_0: 2e-2 };
const apartOf = (name, type) => Math.max(APART[type], MODELS[name].apart ?? 0);
/** The least margin in nats between a token and the next likely one: rounding must not choose. */
const MARGIN = 0.1;

test("the models are trained and saved", { timeout: 1_200_000 }, async (t) => {
  rmSync(folder, { recursive: true, force: true });
  const script = join(import.meta.dirname, "gguf", "host.mjs");
  const { messages, printed, code } = await told(script, {
    args: [folder, ...names],
    seconds: 1190,
    signal: t.signal,
  });
  for (const { name, loss, read } of messages) {
    t.diagnostic(`${name}: loss ${loss.toFixed(3)}`);
    readBack[name] = read;
  }
  assert.equal(code, 0, printed);
});

test("files are read back as they were written", (t) => {
  assert.deepEqual(Object.keys(readBack), names);
  for (const [name, { ids, ...types }] of Object.entries(readBack)) {
    assert.deepEqual(ids, [], `${name}: texts with other ids`);
    for (const [type, { same, apart, ends, packed }] of Object.entries(types)) {
      const file = `${name}-${type}.gguf`;
      assert.ok(same, `${file}: the weights`);
      assert.deepEqual(apart, MODELS[name].readAs ?? [], `${file}: fields of the config`);
      assert.ok(Number.isInteger(ends), `${file}: what ends a text`);
      if (!packed) continue;
      // The reference quantisers give each group its extreme code, so both are the same numbers.
      assert.ok(Math.abs(packed[0] - packed[1]) < 1e-5, `${file}: losses ${packed}`);
      t.diagnostic(`${file}: packed loss ${packed[0].toFixed(5)}`);
    }
  }
});

test("Python's gguf makes the same of the weights", { timeout: 120_000 }, async (t) => {
  const python = await referencePython();
  const script = join(root, "tests", "reference", "check_gguf.py");
  const { status, stdout, stderr } = spawnSync(python, [script, folder], { encoding: "utf8" });
  assert.equal(status, 0, `${stdout}${stderr}`);
  const lines = stdout.trim().split("\n");
  assert.equal(lines.length, names.length * TYPES.length);
  for (const line of lines) t.diagnostic(line);
});

/** What wllama makes of a file: the answers of page.mjs. */
async function asked(page, url, file, prompts, count) {
  const { answers, error } = await page.evaluate(
    async (base, ...given) =>
      (await import(`${base}/tests/files/gguf/page.mjs`)).continued(base, ...given),
    url,
    `/gguf/${file}`,
    prompts,
    count,
  );
  assert.equal(error, undefined, `${file}: ${error}`);
  return answers;
}

const expectedOf = (name) => JSON.parse(readFileSync(join(folder, `${name}.expected.json`)));

function compare(file, { tokens, logprobs }, expected, apart) {
  assert.deepEqual(tokens, expected.tokens, file);
  const far = Math.max(...logprobs.map((one, at) => Math.abs(one - expected.logprobs[at])));
  assert.ok(far < apart, `${file}: log-probabilities are up to ${far} apart`);
  return far;
}

test("llama.cpp continues as tinyloom does", { timeout: 900_000 }, async (t) => {
  const server = await serve({
    "/blank.html": Buffer.from("<!doctype html><title>wllama</title>"),
    "/tests": join(root, "tests"),
    "/gguf": folder,
    "/wllama": join(root, "node_modules", "@wllama", "wllama", "esm"),
  });
  const browser = await launch("chromium");
  try {
    const page = await openPage(browser, `${server.url}/blank.html`);
    let compared = 0;
    for (const name of names) {
      const { prompt, texts, types } = expectedOf(name);
      for (const [type, expected] of Object.entries(types)) {
        const file = `${name}-${type}.gguf`;
        assert.equal(expected.tokens.length, TOKENS);
        assert.ok(new Set(expected.tokens).size > 12, `${file}: the text is degenerate`);
        assert.ok(expected.margin > MARGIN, `${file}: a margin of ${expected.margin} nats`);
        const [answer] = await asked(page, server.url, file, [PROMPT], TOKENS);
        compared += 1;
        assert.equal(answer.read, prompt.length, `${file}: ids of the prompt`);
        const far = compare(file, answer, expected, apartOf(name, type));
        const margin = expected.margin.toFixed(2);
        t.diagnostic(
          `${file}: ${TOKENS} tokens equal, margin ${margin}, apart ${far.toExponential(1)}`,
        );
      }
      // The log-probability behind a text depends on each of its ids.
      const answers = await asked(page, server.url, `${name}-f32.gguf`, TEXTS, 1);
      for (const [at, { ids, ...expected }] of texts.entries()) {
        assert.equal(answers[at].read, ids.length, `${name}: ids of ${JSON.stringify(TEXTS[at])}`);
        compare(
          `${name}: ${JSON.stringify(TEXTS[at])}`,
          answers[at],
          expected,
          apartOf(name, "f32"),
        );
      }
    }
    assert.equal(compared, names.length * TYPES.length, "files that were compared");
  } finally {
    await browser.close();
    await server.close();
  }
});

test("families without a file are refused by name", () => {
  for (const model_type of ["gpt_neo", "mamba", "constructor", undefined]) {
    const known = model_type === "gpt_neo" ? "llama.cpp does not know it" : "";
    const expected = {
      code: "invalid-options",
      message: new RegExp(`${model_type}.*${known}.*llama, mistral.*gpt2, gpt_neox.*gemma3_text`),
    };
    assert.throws(() => familyOf({ model_type }), expected);
  }
});

test("weights that are not finite are refused", async () => {
  const config = JSON.stringify({ model_type: "llama", hidden_act: "silu", head_dim: 32 });
  const entry = { dtype: "F32", shape: [64, 32], data_offsets: [0, 8192] };
  const json = new TextEncoder().encode(JSON.stringify({ "model.embed_tokens.weight": entry }));
  const saveHeader = () => Uint8Array.from([...new Uint8Array(8), ...json]);
  const writer = { isSaved: () => true, saveHeader };
  for (const type of TYPES) {
    for (const value of [Number.NaN, Number.POSITIVE_INFINITY, 0.5]) {
      const file = await ggufOf({ type, tokenizer: null }, config, writer, false);
      let size = 0;
      const put = (bytes) => {
        size += bytes.length;
      };
      const read = async (pieces, take) => {
        assert.deepEqual(
          pieces.map(({ begin, end }) => [begin, end]),
          [[0, 8192]],
        );
        await take(new Uint8Array(new Float32Array(2048).fill(value, 2047).buffer), 0);
      };
      const written = file.write(read, put);
      if (value === 0.5) {
        await written;
        assert.equal(size, file.size);
      } else {
        const message = new RegExp(`token_embd.weight.*${value}`);
        await assert.rejects(written, { code: "non-finite", message });
      }
    }
  }
});
