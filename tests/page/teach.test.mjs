// Teaching by hand: what samples go on from and where they end, the rules, and that marks and rewards make a model write
// more of what is wanted.
// reads: www tests/page/teach-node.mjs tests/page/page-module.mjs
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { test } from "node:test";
import { root } from "../../scripts/lib.mjs";
import { dawnEnv } from "../../scripts/machine.mjs";
import { core, coreOf, IN_REST } from "../gate/core.mjs";
import { pageModule } from "./page-module.mjs";

const { beginningsOf, firstUnit, unitOf } = await pageModule("src/teach/beginnings");
const { RULES, ruleOf } = await pageModule("src/teach/rules");
const { mixed, tallied } = await pageModule("src/teach/blind");

/** Steps of the model that is taught, as the page trains it. */
const STEPS = core ? "250" : "420";
/** By how much the share of wanted samples has to rise. */
const RISE = 0.2;
/** The share of its whole sentences that it has to keep. */
const KEPT = 0.6;

const PLAY = "KING.\nWhat is thy name?\nMy name is Falstaff, lord.\nThen go, and come again.\n";
const PROSE =
  "The fox ran over the hill and into the barn behind the mill. Nobody saw it there! Did the owl know of it? It did.\n\n" +
  "The hen slept all day long, and then she went to the pond";

test("beginnings are whole lines of a play, and whole sentences of prose", () => {
  assert.equal(unitOf(PLAY), "line");
  assert.equal(unitOf(PROSE), "sentence");
  const lines = [
    "\nMy name is Falstaff, lord.\n",
    "\nThen go, and come again.\n",
    "\nWhat is thy name?\n",
  ];
  assert.deepEqual(beginningsOf(PLAY, "line", 1).sort(), lines);
  assert.deepEqual(beginningsOf(PROSE, "sentence", 1).sort(), [
    "Did the owl know of it? ",
    "Nobody saw it there! ",
    "The fox ran over the hill and into the barn behind the mill. ",
  ]);
  const many = Array.from({ length: 40 }, (_, at) => `This is sentence ${at}. `).join("");
  const [one, same, other] = [1, 1, 2].map((seed) => beginningsOf(many, "sentence", seed));
  assert.deepEqual(one, same);
  assert.notDeepEqual(one, other, "another seed, another order");
  assert.deepEqual([...one].sort(), [...other].sort());
  assert.equal(beginningsOf(`${many}${many}`, "sentence", 1).length, 40, "each stands once");
  assert.deepEqual(beginningsOf("", "line", 1), []);
});

test("a sample ends with its first sentence or line", () => {
  for (const [text, unit, wanted, whole] of [
    ["a fox ran. then", "sentence", "a fox ran.", true],
    ["\n a fox ran! then", "sentence", "\n a fox ran!", true],
    ["a fox", "sentence", "a fox", false],
    ["Go. Now\nand", "line", "Go. Now\n", true],
    ["", "line", "", false],
  ]) {
    assert.deepEqual(firstUnit(text, unit), { text: wanted, whole }, JSON.stringify(text));
  }
});

test("each rule holds for what it says, and not for the rest", () => {
  const samples = {
    short: ["a fox ran.", "one day a big shy fox ran with ann by the mill."],
    long: ["one day a big shy fox ran with ann by the mill.", "a fox ran."],
    colour: ["a Blue key.", "it was bored."],
    red: ["a red key.", "a blue key."],
    dot: ["a fox ran. ", "did it run?"],
    question: ["did it run?", "a fox ran."],
  };
  assert.deepEqual(
    Object.keys(samples),
    RULES.map(({ name }) => name),
  );
  for (const [name, [right, wrong]] of Object.entries(samples)) {
    assert.ok(ruleOf(name).holds(right), `${name}: ${right}`);
    assert.ok(!ruleOf(name).holds(wrong), `${name}: ${wrong}`);
    assert.ok(!ruleOf(name).holds(""), `${name}: nothing`);
  }
});

test("a blind comparison has as many of each kind, and no beginning twice", () => {
  const written = (how) =>
    Array.from({ length: 64 }, (_, at) => ({ beginning: `${at}`, text: how }));
  const all = mixed(written("before"), written("after"), 7);
  assert.equal(all.length, 16);
  assert.equal(new Set(all.map(({ sample }) => sample.beginning)).size, 16);
  for (const { sample, taught } of all) assert.equal(sample.text, taught ? "after" : "before");
  const order = all.map(({ taught }) => Number(taught)).join("");
  assert.doesNotMatch(order, /^0{8}1{8}$|^1{8}0{8}$/);
  const other = mixed(written("before"), written("after"), 8);
  assert.notDeepEqual(other, all, "another seed, another comparison");
  const liked = tallied(all, ({ taught }) => taught);
  assert.deepEqual(liked, { before: 0, after: 8, each: 8 });
});

/** What a process has found for each seed. */
function taught(t, ...args) {
  const { status, stdout, stderr } = spawnSync(
    process.execPath,
    [join(root, "tests/page/teach-node.mjs"), ...args],
    { encoding: "utf8", env: { ...process.env, ...dawnEnv() } },
  );
  assert.equal(status, 0, stderr);
  t.diagnostic(stdout.trim());
  return stdout
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));
}

function rises(found, seeds) {
  assert.deepEqual(
    found.map(({ seed }) => seed),
    seeds,
  );
  for (const { seed, before, after, base, marks, unmarked, both } of found) {
    assert.ok(marks <= 40 && unmarked === 64 && both === 0, `${marks}, ${unmarked}, ${both}`);
    const [[wanted, parsed], [wantedAfter, parsedAfter]] = [before, after];
    const told = `seed ${seed}: from ${before} to ${after}`;
    assert.ok(wantedAfter >= wanted + RISE, told);
    assert.ok(parsedAfter >= KEPT * parsed, `${told}: it writes as it did`);
    assert.deepEqual(base, before, "the model itself stays as it is");
  }
}

test("40 marks by a rule raise the share of wanted samples on unmarked beginnings", {
  timeout: 1_800_000,
}, (t) => {
  const seeds = coreOf([1, 2, 3], 3);
  rises(taught(t, "short", seeds.join(), STEPS), seeds);
});

test("a rule as a reward does so too", { timeout: 900_000, skip: core && IN_REST }, (t) => {
  rises(taught(t, "red", "1", STEPS, "reward"), [1]);
});
