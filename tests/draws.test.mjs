// What the seed draws of tests/pkg: nothing is left out for ever.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { basename } from "node:path";
import { test } from "node:test";
import { filesBelow } from "../scripts/lib.mjs";
import { drawnWith, IN_FULL } from "./draws.mjs";
import { PLACES, placed } from "./pkg/bodies/places.mjs";

test("each of a list is drawn by some seed, and each seed draws some", () => {
  const list = ["one", "two", "three", "four"];
  for (const parts of [2, 3, 4]) {
    const seeds = Array.from({ length: 64 }, (_, seed) => seed);
    const draws = seeds.map((seed) => drawnWith(seed, "numbers", list, parts));
    assert.ok(draws.every(({ length }) => length >= 1 && length <= Math.ceil(list.length / parts)));
    assert.deepEqual(new Set(draws.flat()), new Set(list), `one of ${parts}`);
  }
});

test("what one seed draws of two lists is apart", () => {
  const pairs = Array.from({ length: 64 }, (_, seed) =>
    ["storage", "demo"].map((what) => drawnWith(seed, what, ["a", "b"], 2)).join(),
  );
  assert.equal(new Set(pairs).size, 4);
});

test("each case of a body runs in each of its hosts with one of twelve seeds in a row", async () => {
  for (const [body, { whole, smoke = [], full }] of Object.entries(PLACES)) {
    const { cases } = await import(`./pkg/bodies/${body}.mjs`);
    const names = Object.keys(cases);
    for (const host of ["node", "chromium", "firefox"]) {
      const runs = Array.from({ length: 12 }, (_, turn) => placed(body, names, host, turn));
      const expected = full ? [] : whole.includes(host) ? names : smoke;
      assert.deepEqual(new Set(runs.flat()), new Set(expected), `${body}, ${host}`);
    }
  }
});

test("each case that touches the host runs with two of four seeds in a host that does not run all cases", async () => {
  for (const [body, { whole, smoke = [], always = [], full }] of Object.entries(PLACES)) {
    const { cases } = await import(`./pkg/bodies/${body}.mjs`);
    const others = ["node", "chromium", "firefox"].filter((host) => !whole.includes(host));
    const runs = [0, 1, 2, 3].flatMap((turn) =>
      others.flatMap((host) => placed(body, Object.keys(cases), host, turn)),
    );
    for (const name of full || others.length === 0 ? [] : smoke) {
      const expected = always.includes(name) ? 4 * others.length : 2;
      const times = runs.filter((run) => run === name).length;
      assert.equal(times, expected, `${body}: ${name}`);
    }
  }
});

test("the full level has every file that leaves something out", () => {
  const draws = /^import \{[^}]*\b(everything|drawnOf|testDrawn|full|inBrowser|inNode)\b[^}]*\}/m;
  const files = filesBelow(["tests/pkg"]).filter(
    (path) =>
      path.endsWith(".full.mjs") ||
      (path.endsWith(".test.mjs") && draws.test(readFileSync(path, "utf8"))),
  );
  const names = files.map((path) => basename(path).replace(/\.(test|full)\.mjs$/, ""));
  assert.deepEqual(names.toSorted(), IN_FULL.toSorted());
});
