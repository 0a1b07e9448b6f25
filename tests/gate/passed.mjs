// The keys of what has passed: tests/passed/NAME.txt has a line per group, the group's name and then its keys. Git
// merges two such files by joining their lines.
import { join } from "node:path";
import { root } from "../../scripts/lib.mjs";
import { softwareOnly } from "../../scripts/machine.mjs";
import { keyOf } from "./key.mjs";
import { Made } from "./made.mjs";
import { readText, replaceText } from "./text-file.mjs";

export const FOLDER = join(root, "tests", "passed");

/**
 * Which tests of a run are run:
 * - `everyday`: those whose core has no key; where these are most of all, their core alone;
 * - `rest`: all that has no key, whole;
 * - `whole`: everything, whatever has a key: what is named on the command line;
 * - `full`: everything, with the full products of the kernel lanes.
 */
export const MODES = ["everyday", "rest", "whole", "full"];

/** The mode of this run: the variable TINYLOOM_GATE. */
export function gateMode() {
  const mode = process.env.TINYLOOM_GATE || "everyday";
  if (MODES.includes(mode)) return mode;
  throw new Error(`TINYLOOM_GATE is ${mode}, not ${MODES.join(", ")}`);
}

/** Variables that change what a test runs on. */
const OTHERWISE = [
  "TINYLOOM_SEED",
  "CHROME_GPU_FLAGS",
  "VK_ICD_FILENAMES",
  "VK_DRIVER_FILES",
  "PYTHON",
];

/**
 * Whether keys count and are kept: on Linux with the software adapters, whose versions are known, and with the usual random
 * data. Elsewhere everything runs: a GPU is fast, and its driver's version is not known.
 */
export const keyed =
  process.platform === "linux" && softwareOnly() && OTHERWISE.every((name) => !process.env[name]);

/** Letters of a key. */
export const KEY = 10;

/** The key of a test's core, beside that of the whole test. */
export const coreKey = (key) => `${key}-`;

/** The keys of a file. One process writes a file at a time. */
export class Passed {
  #path;
  #groups = new Map();

  /** @param name - of the file below tests/passed, without its ending. */
  constructor(name, folder = FOLDER) {
    this.#path = join(folder, `${name}.txt`);
    this.#read();
  }

  /** Joins what the file has: another process may have written it. */
  #read() {
    for (const line of readText(this.#path).split("\n").filter(Boolean)) {
      const [group, keys] = line.split("\t");
      for (const key of (keys ?? "").split(" ")) this.#keys(group).add(key);
    }
  }

  #keys(group) {
    if (!this.#groups.has(group)) this.#groups.set(group, new Set());
    return this.#groups.get(group);
  }

  has(group, key) {
    return this.#groups.get(group)?.has(key) ?? false;
  }

  /** Notes keys that passed, at once: what a run that is ended has proved stays. */
  add(group, ...keys) {
    this.#read();
    for (const key of keys) this.#keys(group).add(key);
    this.#write();
  }

  /** How many tests have passed in their core and not whole. */
  get left() {
    const all = [...this.#groups.values()].flatMap((keys) => [...keys]);
    const whole = new Set(all);
    return all.filter((key) => key.length > KEY && !whole.has(key.slice(0, KEY))).length;
  }

  /** Drops what no test has any more: all keys but these, `[group, key]` each. */
  keep(pairs) {
    const kept = new Map();
    for (const [group, key] of pairs) {
      if (!this.has(group, key)) continue;
      if (!kept.has(group)) kept.set(group, new Set());
      kept.get(group).add(key);
    }
    this.#groups = kept;
    this.#write();
  }

  #write() {
    const groups = [...this.#groups].filter(([, keys]) => keys.size > 0);
    const lines = groups.map(([group, keys]) => `${group}\t${[...keys].sort().join(" ")}\n`);
    const text = lines.sort().join("");
    replaceText(this.#path, text);
  }
}

/** The group that says that a core runs: its key is of all tests' keys, so that a run that was cut goes on as it began. */
const CORE = "(core)";

/**
 * What is to run of tests.
 *
 * @param tests - `[{ group, key, … }]`.
 * @param mode - one of MODES.
 * @returns `{ run, left, most }`: `run` has `{ test, core }` in the given order, where `core` says that the test's core
 *   is enough; `left` counts the tests that have not passed whole when this run is over; `most` is the key of CORE where
 *   most tests have changed.
 */
export function chosen(passed, tests, mode) {
  const whole = ({ group, key }) => passed.has(group, key);
  const core = ({ group, key }) => whole({ group, key }) || passed.has(group, coreKey(key));
  const all = (list) => list.map((test) => ({ test, core: false }));
  if (mode === "rest") return { run: all(tests.filter((test) => !whole(test))), left: 0 };
  if (mode !== "everyday") return { run: all(tests), left: 0 };
  const changed = tests.filter((test) => !core(test));
  const state = keyOf(...tests.map(({ key }) => key));
  const most = changed.length * 2 > tests.length || passed.has(CORE, state);
  const run = changed.map((test) => ({ test, core: most }));
  const left = tests.filter((test) => !whole(test)).length - (most ? 0 : changed.length);
  return { run, left, ...(most && changed.length > 0 && { most: state }) };
}

/**
 * Opens the tests of a file of keys.
 *
 * @param name - of the file below tests/passed.
 * @param tests - `[{ name, group, key, … }]`, all that there are. Where the key depends on the kernels that the test dispatches,
 *   `keyWith` gives it instead, by their list, or by nothing where they are not known.
 * @param mode - one of MODES.
 * @returns `run`: `[{ name, core }]` in the order of `tests`; `left`: how many have not passed whole when this run is
 *   over; `passed(name, kernels)` notes that one has passed, with the kernels that it dispatched; `ended()` drops the keys of tests that are
 *   gone or have changed, and throws where one has not passed that was to run.
 */
export function openTests(name, tests, mode = gateMode(), folder = FOLDER) {
  const keys = new Passed(name, folder);
  const made = new Made(name, folder);
  const all = tests.map((test) =>
    test.keyWith ? { ...test, key: test.keyWith(made.of(test.name)) } : test,
  );
  const { run, left, most } = chosen(keys, all, keyed ? mode : "whole");
  if (keyed && most) keys.add(CORE, most);
  const open = new Map(run.map((one) => [one.test.name, one]));
  return {
    run: run.map(({ test, core }) => ({ name: test.name, core })),
    left,
    passed(name, kernels) {
      const { test, core } = open.get(name);
      open.delete(name);
      if (!keyed) return;
      if (test.keyWith) {
        made.note(test.name, kernels);
        test.key = test.keyWith(kernels);
      }
      const { group, key } = test;
      keys.add(group, ...(core ? [coreKey(key)] : [key, coreKey(key)]));
    },
    ended() {
      if (open.size > 0) throw new Error(`not passed: ${[...open.keys()].join(", ")}`);
      if (!keyed) return;
      keys.keep(all.flatMap(({ group, key }) => [key, coreKey(key)].map((one) => [group, one])));
      made.keep(all.map((test) => test.name));
    },
  };
}

/** How many tests of a file of keys have passed in their core and not whole. */
export const leftIn = (name) => new Passed(name).left;
