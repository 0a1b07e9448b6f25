// The keys of what has passed: tests/passed/NAME.txt has a line per group, the group's name and then its keys. Git
// merges two such files by joining their lines.
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { root } from "../../scripts/lib.mjs";

export const FOLDER = join(root, "tests", "passed");

/**
 * Which tests of a run are run:
 * - `everyday`: those whose core has no key; where these are most of all, their core alone;
 * - `rest`: all that has no key, whole;
 * - `full`: everything, whatever has a key.
 */
export const MODES = ["everyday", "rest", "full"];

/** The mode of this run: the variable TINYLOOM_GATE. */
export function gateMode() {
  const mode = process.env.TINYLOOM_GATE || "everyday";
  if (MODES.includes(mode)) return mode;
  throw new Error(`TINYLOOM_GATE is ${mode}, not ${MODES.join(", ")}`);
}

/** The keys of a file. One process writes a file at a time. */
export class Passed {
  #path;
  #groups = new Map();

  /** @param name - of the file below tests/passed, without its ending. */
  constructor(name, folder = FOLDER) {
    this.#path = join(folder, `${name}.txt`);
    const text = existsSync(this.#path) ? readFileSync(this.#path, "utf8") : "";
    for (const line of text.split("\n").filter(Boolean)) {
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
    for (const key of keys) this.#keys(group).add(key);
    this.#write();
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
    if (existsSync(this.#path) && readFileSync(this.#path, "utf8") === text) return;
    mkdirSync(dirname(this.#path), { recursive: true });
    const fresh = `${this.#path}.${process.pid}`;
    writeFileSync(fresh, text);
    renameSync(fresh, this.#path);
  }
}

/** The key of a test's core, beside that of the whole test. */
export const coreKey = (key) => `${key}-`;

/**
 * What is to run of tests.
 *
 * @param tests - `[{ group, key, … }]`.
 * @param mode - one of MODES.
 * @returns `{ run, left }`: `run` has `{ test, core }` in the given order, where `core` says that the test's core
 *   is enough; `left` counts the tests that have not passed whole when this run is over.
 */
export function chosen(passed, tests, mode) {
  const whole = ({ group, key }) => passed.has(group, key);
  const core = ({ group, key }) => whole({ group, key }) || passed.has(group, coreKey(key));
  if (mode === "full") return { run: tests.map((test) => ({ test, core: false })), left: 0 };
  if (mode === "rest") {
    const run = tests.filter((test) => !whole(test)).map((test) => ({ test, core: false }));
    return { run, left: 0 };
  }
  const changed = tests.filter((test) => !core(test));
  const most = changed.length * 2 > tests.length;
  const run = changed.map((test) => ({ test, core: most }));
  const left = tests.filter((test) => !whole(test)).length - (most ? 0 : changed.length);
  return { run, left };
}

/**
 * Opens the tests of a file of keys.
 *
 * @param name - of the file below tests/passed.
 * @param tests - `[{ name, group, key, … }]`, all that there are.
 * @param mode - one of MODES.
 * @param keeps - whether keys are kept.
 * @returns `run`: `[{ name, core }]` in the order of `tests`; `left`: how many have not passed whole when this run is
 *   over; `passed(name)` notes that one has passed; `ended()` drops the keys of tests that are gone or have changed.
 */
export function openTests(name, tests, mode = gateMode(), keeps = true) {
  const keys = new Passed(name);
  const { run, left } = chosen(keys, tests, mode);
  const byName = new Map(run.map((one) => [one.test.name, one]));
  return {
    run: run.map(({ test, core }) => ({ name: test.name, core })),
    left,
    passed(name) {
      const { test, core } = byName.get(name);
      const { group, key } = test;
      if (keeps) keys.add(group, ...(core ? [coreKey(key)] : [key, coreKey(key)]));
    },
    ended() {
      const valid = tests.flatMap(({ group, key }) => [
        [group, key],
        [group, coreKey(key)],
      ]);
      if (keeps) keys.keep(valid);
    },
  };
}
