// The gate's rules: what runs, what is left, what is noted.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { filesBelow } from "../../scripts/lib.mjs";
import { caseKey, closureOf } from "./inputs.mjs";
import { keyOf } from "./key.mjs";
import { chosen, coreKey, Passed } from "./passed.mjs";

const folder = mkdtempSync(join(tmpdir(), "tinyloom-gate-"));
after(() => rmSync(folder, { recursive: true }));

let files = 0;
/** Keys of a fresh file with these lines. */
function keysOf(...lines) {
  const name = `file-${++files}`;
  writeFileSync(join(folder, `${name}.txt`), lines.map((line) => `${line}\n`).join(""));
  return {
    keys: new Passed(name, folder),
    text: () => readFileSync(join(folder, `${name}.txt`), "utf8"),
  };
}

const TESTS = ["a", "b", "c", "d"].map((name) => ({ name, group: "g", key: `key-${name}` }));
const whole = (...names) => names.flatMap((name) => [`key-${name}`, coreKey(`key-${name}`)]);
const names = ({ run }) => run.map(({ test, core }) => `${test.name}${core ? " core" : ""}`);

test("what has passed does not run", () => {
  const { keys } = keysOf(`g\t${whole("a", "b", "c", "d").join(" ")}`);
  const { run, left } = chosen(keys, TESTS, "everyday");
  assert.deepEqual([run, left], [[], 0]);
});

test("what has changed runs whole, unless most has", () => {
  const few = keysOf(`g\t${whole("a", "b", "c").join(" ")}`);
  assert.deepEqual(names(chosen(few.keys, TESTS, "everyday")), ["d"]);
  const most = keysOf(`g\t${whole("a").join(" ")}`);
  const plan = chosen(most.keys, TESTS, "everyday");
  assert.deepEqual(names(plan), ["b core", "c core", "d core"]);
  assert.equal(plan.left, 3, "a core is not the whole");
});

test("a core that has passed does not run again, and is counted as left", () => {
  const { keys } = keysOf(`g\t${TESTS.map(({ key }) => coreKey(key)).join(" ")}`);
  const plan = chosen(keys, TESTS, "everyday");
  assert.deepEqual([names(plan), plan.left], [[], 4]);
  const changed = TESTS.map((one) => (one.name === "b" ? { ...one, key: "another" } : one));
  const after = chosen(keys, changed, "everyday");
  assert.deepEqual([names(after), after.left], [["b"], 3], "the one that changed runs whole");
});

test("a core that was cut goes on as one", () => {
  const { keys } = keysOf();
  const begun = chosen(keys, TESTS, "everyday");
  keys.add("(core)", begun.most);
  for (const { key } of TESTS.slice(0, 3)) keys.add("g", coreKey(key));
  assert.deepEqual(names(chosen(keys, TESTS, "everyday")), ["d core"]);
  const edited = TESTS.map((one) => (one.name === "d" ? { ...one, key: "another" } : one));
  assert.deepEqual(names(chosen(keys, edited, "everyday")), ["d"], "an edit is another state");
});

test("a file that passes is told from one that fails, as scripts/test.mjs goes by", () => {
  const own = join(folder, "run");
  mkdirSync(own, { recursive: true });
  const files = { good: "() => {}", bad: '() => { throw new Error("wrong"); }' };
  const paths = Object.entries(files).map(([name, body]) => {
    const path = join(own, `${name}.test.mjs`);
    writeFileSync(path, `import { test } from "node:test";\ntest("${name}", ${body});\n`);
    return path;
  });
  const program = `import { run } from "node:test";
    const stream = run({ files: ${JSON.stringify(paths)} });
    stream.on("test:complete", ({ name, file, details }) => {
      if (name === file && details.passed) console.log(name);
    });
    stream.resume();`;
  writeFileSync(join(own, "runner.mjs"), program);
  const { NODE_TEST_CONTEXT: _, ...env } = process.env; // else the runner takes itself for a test file
  const said = execFileSync(process.execPath, [join(own, "runner.mjs")], { env, encoding: "utf8" });
  assert.deepEqual(said.trim().split("\n"), [paths[0]]);
});

test("the rest is what has not passed whole, and a full run is everything", () => {
  const { keys } = keysOf(`g\t${[...whole("a"), coreKey("key-b")].join(" ")}`);
  assert.deepEqual(names(chosen(keys, TESTS, "rest")), ["b", "c", "d"]);
  assert.deepEqual(names(chosen(keys, TESTS, "full")), ["a", "b", "c", "d"]);
});

test("a key counts in its own group alone", () => {
  const { keys } = keysOf(`other\t${whole("a").join(" ")}`);
  assert.equal(chosen(keys, TESTS, "rest").run.length, 4);
});

test("keys are kept at once, and those of no test go", () => {
  const { keys, text } = keysOf("g\tgone key-a");
  keys.add("g", "key-b");
  keys.add("h", "key-z");
  assert.equal(text(), "g\tgone key-a key-b\nh\tkey-z\n");
  keys.keep([
    ["g", "key-b"],
    ["g", "key-c"],
  ]);
  assert.equal(text(), "g\tkey-b\n");
});

test("two branches' lines of a group are joined", () => {
  const { keys } = keysOf("g\tkey-a", "g\tkey-b", "h\tkey-c");
  assert.deepEqual(
    [keys.has("g", "key-a"), keys.has("g", "key-b"), keys.has("h", "key-b")],
    [true, true, false],
  );
});

test("a kernel case's key has its listing, its file and its host", () => {
  const listing = { name: "one", file: "crates/kernels/src/kernels/norm/cases.rs", key: "1" };
  const key = (host, ...changes) =>
    caseKey(
      host,
      changes.map((change) => ({ ...listing, ...change })),
    );
  const all = [
    key("native", {}),
    key("native", { key: "2" }),
    key("native", { file: "crates/kernels/src/kernels/loss/cases.rs" }),
    key("native", { name: "two" }),
    key("native", { key: null }),
    key("chromium", {}),
    key("chromium", {}, {}),
  ];
  assert.equal(new Set(all).size, all.length);
  assert.equal(key("native", {}), key("native", {}));
});

test("a test file's closure has what it imports, and what its line says that it reads", async () => {
  const { modules } = await closureOf("tests/gate/passed.test.mjs");
  for (const path of ["tests/gate/passed.mjs", "tests/gate/inputs.mjs", "scripts/lib.mjs"])
    assert.ok(modules.includes(path), path);
  assert.notEqual(keyOf("a", "b"), keyOf("ab"), "parts are apart");
});

test("every committed line of keys can be read", () => {
  for (const path of filesBelow(["tests/passed"]).filter((path) => path.endsWith(".txt"))) {
    for (const line of readFileSync(path, "utf8").split("\n").filter(Boolean))
      assert.match(line, /^[^\t]+\t[\w-]{10,11}( [\w-]{10,11})*$/, path);
  }
});
