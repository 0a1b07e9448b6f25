// Adapters in the forms that PEFT has: what is read of each adds to a module what PEFT's adds.
// reads: tests/reference/make_peft.py
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { before, test } from "node:test";
import { root, target } from "../../scripts/lib.mjs";
import { referencePython } from "../../scripts/reference.mjs";
import { openFile } from "../api/bodies/kit.mjs";

const { openSource } = await import("../../pkg/dist/file-source.js");
const { NUMBERS } = await import("../../pkg/dist/numbers.js");
const { baseNameIn, plainAdapter } = await import("../../pkg/dist/peft-files.js");

const folder = join(target, "peft-forms");
let forms;

before(async () => {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const script = join(root, "tests", "reference", "make_peft.py");
  const python = await referencePython();
  const { status, stderr } = spawnSync(python, [script, folder], { encoding: "utf8" });
  assert.equal(status, 0, stderr);
  forms = JSON.parse(readFileSync(join(folder, "forms.json"), "utf8"));
});

const files = (name) => {
  const bytes = (file) => new Uint8Array(readFileSync(join(folder, name, file)));
  const names = ["adapter_config.json", "adapter_model.safetensors"];
  return Object.fromEntries(names.map((file) => [file, bytes(file)]));
};

async function bytesOf(source, name) {
  const part = await source.find(name);
  return part.read(0, part.size);
}

function tensorsOf(bytes) {
  const { header, data } = openFile(bytes);
  const entries = Object.entries(header).filter(([name]) => name !== "__metadata__");
  return new Map(
    entries.map(([name, { dtype, shape, data_offsets }]) => {
      return [name, { shape, values: NUMBERS[dtype](data.slice(...data_offsets)) }];
    }),
  );
}

/** What an adapter with one rank and one scale adds to a module. */
function added({ shape: [rank, columns], values: a }, { shape: [rows], values: b }, scale) {
  const sums = new Float64Array(rows * columns);
  for (let row = 0; row < rows; row++) {
    for (let k = 0; k < rank; k++) {
      for (let column = 0; column < columns; column++) {
        sums[row * columns + column] += scale * b[row * rank + k] * a[k * columns + column];
      }
    }
  }
  return sums;
}

test("each form adds what PEFT's adapter adds", async (t) => {
  for (const name of forms.loaded) {
    const source = await plainAdapter(openSource("Adapter.load", files(name), {}));
    const text = new TextDecoder().decode(await bytesOf(source, "adapter_config.json"));
    const config = JSON.parse(text);
    assert.equal(baseNameIn(text), "org/small-llama", name);
    for (const field of ["rank_pattern", "alpha_pattern"])
      assert.deepEqual(config[field], {}, name);
    for (const field of ["layers_to_transform", "exclude_modules"]) {
      assert.equal(config[field] ?? null, null, `${name}: ${field}`);
    }
    const { r, lora_alpha: alpha, use_rslora: rooted, target_modules: targets } = config;
    assert.ok(targets === "all-linear" || Array.isArray(targets), `${name}: ${targets}`);
    const own = tensorsOf(await bytesOf(source, "adapter_model.safetensors"));
    const expected = tensorsOf(
      new Uint8Array(readFileSync(join(folder, name, "deltas.safetensors"))),
    );
    assert.equal(own.size, 2 * expected.size, `${name}: modules`);
    let worst = 0;
    for (const [module, { values, shape }] of expected) {
      const [a, b] = ["A", "B"].map((kind) =>
        own.get(`base_model.model.${module}.lora_${kind}.weight`),
      );
      assert.deepEqual(
        [a.shape, b.shape],
        [
          [r, shape[1]],
          [shape[0], r],
        ],
        `${name}: ${module}`,
      );
      if (Array.isArray(targets)) {
        assert.ok(
          targets.some((one) => module === one || module.endsWith(`.${one}`)),
          module,
        );
      }
      const sums = added(a, b, alpha / (rooted ? Math.sqrt(r) : r));
      const size = Math.max(...values.map(Math.abs));
      for (const [at, value] of values.entries()) {
        worst = Math.max(worst, Math.abs(value - sums[at]) / size);
      }
    }
    // PEFT multiplies in BF16 there.
    assert.ok(worst < (name === "bf16" ? 2e-2 : 1e-6), `${name}: ${worst} apart`);
    t.diagnostic(`${name}: ${expected.size} modules, ${worst.toExponential(1)} apart`);
  }
});

test("an adapter that is plain passes as it is", async () => {
  const given = files("list");
  const source = await plainAdapter(openSource("Adapter.load", given, {}));
  for (const [name, bytes] of Object.entries(given)) {
    assert.deepEqual(Buffer.from(await bytesOf(source, name)), Buffer.from(bytes), name);
  }
});

test("embeddings and heads are refused with the reason and the cure", async () => {
  for (const name of ["embedding", "head", "grown"]) {
    const work = plainAdapter(openSource("Adapter.load", files(name), {}));
    await assert.rejects(work, (error) => {
      assert.equal(error.code, "invalid-checkpoint");
      assert.match(error.message, /embed_tokens|lm_head/);
      assert.match(error.message, /vocabulary was grown.*merge_and_unload/);
      return true;
    });
  }
  // What else PEFT has is the module's to refuse.
  const dora = await plainAdapter(openSource("Adapter.load", files("dora"), {}));
  assert.match(new TextDecoder().decode(await bytesOf(dora, "adapter_config.json")), /use_dora/);
});

test("a rank that the matrices do not have is refused", async () => {
  for (const [name, changes, expected] of [
    ["rank-pattern", { rank_pattern: { v_proj: 3 } }, /v_proj the rank 3, and its matrix has 2/],
    ["regex", { r: 5 }, /the rank 5, and its matrix has 4/],
  ]) {
    const given = files(name);
    const config = JSON.parse(new TextDecoder().decode(given["adapter_config.json"]));
    const text = JSON.stringify({ ...config, ...changes });
    const changed = { ...given, "adapter_config.json": new TextEncoder().encode(text) };
    const work = plainAdapter(openSource("Adapter.load", changed, {}));
    await assert.rejects(work, { code: "invalid-config", message: expected });
  }
});

test("a pattern that says nothing, or that JavaScript does not read, is refused by name", async () => {
  const given = files("alpha-pattern");
  const text = new TextDecoder().decode(given["adapter_config.json"]);
  for (const [pattern, expected] of [
    [{ q_proj: 0 }, /alpha_pattern\.q_proj is 0/],
    [{ q_proj: "32" }, /alpha_pattern\.q_proj is "32"/],
    [{ "(?P<layer>q_proj)": 3 }, /alpha_pattern has the expression "\(\?P<layer>q_proj\)"/],
  ]) {
    const config = JSON.stringify({ ...JSON.parse(text), alpha_pattern: pattern });
    const changed = { ...given, "adapter_config.json": new TextEncoder().encode(config) };
    const work = plainAdapter(openSource("Adapter.load", changed, {}));
    await assert.rejects(work, { code: "invalid-config", message: expected });
  }
});
