// Which kernels a test has made, and what they are made of.
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { filesBelow, root } from "../../scripts/lib.mjs";
import { productKey } from "./inputs.mjs";
import { Kernels, Made } from "./made.mjs";
import { openTests } from "./passed.mjs";
import { watch } from "./record.mjs";

const folder = mkdtempSync(join(tmpdir(), "tinyloom-made-"));
after(() => rmSync(folder, { recursive: true }));
const kernels = new Kernels();
const textOf = (path) => readFileSync(join(root, path), "utf8");

/** Every string of the kernels' Rust: entry points are among them. */
const strings = filesBelow(["crates/kernels/src"])
  .filter((path) => path.endsWith(".rs"))
  .flatMap((path) => textOf(path).match(/"\w+"/g) ?? [])
  .map((text) => text.slice(1, -1));

/** Lines of a kernel's file that are in every text of it as they stand: under no condition, and without an operand. */
function surely(entry) {
  const lines = textOf(`shaders/${entry}.wgsl`).split("\n");
  const operands = lines.flatMap((line) => /^#(?:operand|binding) (\w+):/.exec(line)?.[1] ?? []);
  let open = 0;
  return lines.filter((line) => {
    if (/^\s*#if/.test(line)) open++;
    if (/^\s*#endif/.test(line)) open--;
    return open === 0 && !operands.some((name) => new RegExp(`\\b${name}\\b`).test(line));
  });
}

test("every kernel is known by its entry point, or by a line of its own", () => {
  assert.ok(kernels.entries.length > 70, `${kernels.entries.length} kernels`);
  const named = new Set(strings.flatMap((label) => [...kernels.in({ label, code: "" })]));
  const unknown = kernels.entries.filter(
    (entry) =>
      !named.has(entry) && !kernels.in({ label: "", code: surely(entry).join("\n") }).has(entry),
  );
  assert.deepEqual(unknown, []);
});

test("the texts of the readable plans' kernels are known", () => {
  const texts = ["03_matmul_direct", "05_attention_decode_merge", "12_step_decision"];
  for (const entry of texts) {
    const code = surely(entry).join("\n");
    assert.ok(kernels.in({ label: "another", code }).has(entry), entry);
  }
  const named = (label) => [...kernels.in({ label, code: "" })];
  assert.deepEqual(named("rms_norm_forward"), ["02_rms_norm_forward"]);
  assert.deepEqual(named("scale_backward"), ["00_scale"], "a file for both directions");
  assert.equal(kernels.of([{ label: "another", code: "fn main() {}" }]), undefined);
  assert.deepEqual(kernels.of([]), [], "a test without kernels");
});

test("a kernel depends on its file, its imports and its family, and on no other kernel", () => {
  const other = kernels.without(["02_rms_norm_forward"]);
  const rust = "crates/kernels/src";
  for (const [path, is] of [
    ["shaders/02_rms_norm_forward.wgsl", false],
    ["shaders/lib/reduce.wgsl", false],
    ["shaders/02_layer_norm_forward.wgsl", true],
    ["shaders/03_matmul_matrix.wgsl", true],
    ["shaders/lib/matrix.wgsl", true],
    [`${rust}/kernels/norm/mod.rs`, false],
    [`${rust}/kernels/attention/mod.rs`, true],
    [`${rust}/kernels/compose.rs`, false],
    [`${rust}/lower/norm.rs`, false],
    ["src/lib.rs", false],
  ])
    assert.equal(other(path), is, path);
  const attention = kernels.without(["05_attention_forward_row"]);
  assert.equal(attention(`${rust}/kernels/linear/mod.rs`), false, "a family that it uses");
  assert.equal(attention("shaders/lib/matvec/pair_bias.wgsl"), false, "what Rust adds to a text");
  const none = kernels.without([]);
  assert.ok(none("shaders/lib/range.wgsl") && !none("src/lib.rs"));
});

test("every file of a kernel belongs to a family, or to what all tests depend on", () => {
  const below = filesBelow(["crates/kernels/src/kernels"]).filter((path) => path.endsWith(".rs"));
  const all = kernels.without(kernels.entries);
  assert.deepEqual(
    below.filter((path) => all(path)),
    [],
    "files that no test's key would have",
  );
});

test("keys differ by the kernels that are known", () => {
  const keys = [undefined, [], ["02_rms_norm_forward"], ["02_layer_norm_forward"]].map(productKey);
  // Both norms have one family: its files are in both keys, and so are those that they import.
  assert.equal(new Set(keys).size, 4);
});

test("a test's kernels are kept, joined where two branches noted them, and dropped with it", () => {
  const made = new Made("some", folder);
  const path = join(folder, "some.made");
  assert.equal(made.of("g a"), undefined);
  made.note("g a", ["2", "1"]);
  made.note("g b", ["1", "2"]);
  made.note("g c", ["3"]);
  const [set] = textOfFile(path).split("\t");
  assert.match(set, /^=[\w-]{6}$/);
  assert.equal(textOfFile(path).match(/^=/gm).length, 2, "a set that two tests have is there once");
  assert.deepEqual(new Made("some", folder).of("g b"), ["1", "2"]);
  const [, three] = /^=([\w-]+)\t3$/m.exec(textOfFile(path));
  writeFileSync(path, `${textOfFile(path)}g a\t${three}\n`);
  assert.deepEqual(new Made("some", folder).of("g a"), ["1", "2", "3"]);
  made.note("g c", undefined);
  made.keep(["g b"]);
  const left = new Made("some", folder);
  assert.deepEqual(
    [left.of("g a"), left.of("g b"), left.of("g c")],
    [undefined, ["1", "2"], undefined],
  );
});

const textOfFile = (path) => readFileSync(path, "utf8");

test("a test runs again where a kernel of its own has changed, and not where another has", () => {
  const sources = { one: "1", two: "1" };
  const keyWith = (made) =>
    `key${Object.entries(sources)
      .map(([name, text]) => (!made || made.includes(name) ? text : "-"))
      .join("")}`.padEnd(10, "k");
  const own = mkdtempSync(join(folder, "run-"));
  const open = () => openTests("some", [{ name: "a", group: "a", keyWith }], "everyday", own);
  const runs = () => open().run.length === 1;
  const passes = (made) => {
    const opened = open();
    opened.passed("a", made);
    opened.ended();
  };
  passes(["one"]);
  assert.equal(runs(), false);
  sources.two = "2";
  assert.equal(runs(), false, "it makes no such kernel");
  sources.one = "2";
  assert.equal(runs(), true, "a kernel of its own");
  passes(["one", "two"]);
  sources.two = "3";
  assert.equal(runs(), true, "what it makes now");
  passes(undefined);
  sources.one = "3";
  assert.equal(runs(), true, "where it is not known what it makes, all kernels count");
});

test("a kernel is recorded when it is dispatched, once after each question", () => {
  class GPUDevice {}
  Object.assign(GPUDevice.prototype, {
    createShaderModule: ({ code }) => ({ code }),
    createComputePipeline: () => ({}),
    createComputePipelineAsync: async () => ({}),
  });
  class GPUComputePassEncoder {}
  GPUComputePassEncoder.prototype.setPipeline = () => undefined;
  const heard = [];
  const forget = watch({ GPUDevice, GPUComputePassEncoder }, ({ label }) => heard.push(label));
  const { prototype: device } = GPUDevice;
  const module = device.createShaderModule({ label: "used", code: "a" });
  device.createShaderModule({ label: "unused", code: "b" });
  const pipeline = device.createComputePipeline({ compute: { module } });
  const pass = new GPUComputePassEncoder();
  assert.deepEqual(heard, []);
  pass.setPipeline(pipeline);
  pass.setPipeline(pipeline);
  assert.deepEqual(heard, ["used"]);
  forget();
  pass.setPipeline(pipeline);
  assert.deepEqual(heard, ["used", "used"]);
});

test("every committed line of kernels names a set that is there, and kernels that there are", () => {
  const files = filesBelow(["tests/passed"]).filter((path) => path.endsWith(".made"));
  assert.ok(files.length > 0);
  for (const path of files) {
    const lines = textOf(path)
      .split("\n")
      .filter(Boolean)
      .map((line) => line.split("\t"));
    const sets = new Set(lines.map(([name]) => name));
    for (const [name, value] of lines) {
      if (!name.startsWith("=")) assert.ok(sets.has(`=${value}`), `${path}: ${name}`);
      else assert.match(value, /^(\d\d_\w+( \d\d_\w+)*)?$/, `${path}: ${name}`);
    }
  }
});
