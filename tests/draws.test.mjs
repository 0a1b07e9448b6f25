// What the seed draws of tests/pkg: nothing is left out for ever.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { basename } from "node:path";
import { test } from "node:test";
import { filesBelow } from "../scripts/lib.mjs";
import { drawnWith, GROUPS, IN_FULL } from "./draws.mjs";
import { PLACES, placed } from "./pkg/bodies/places.mjs";

test("each of a list is drawn by some seed; where there are more parts, some seeds draw none", () => {
  const list = ["one", "two", "three", "four"];
  const groups = Object.entries(GROUPS).map(([name, { parts, tests }]) => [name, tests, parts]);
  for (const [name, tests, parts] of [...[2, 3, 4].map((n) => ["numbers", list, n]), ...groups]) {
    const seeds = Array.from({ length: 256 }, (_, seed) => seed);
    const draws = seeds.map((seed) => drawnWith(seed, name, tests, parts));
    const [least, most] = [Math.floor, Math.ceil].map((round) => round(tests.length / parts));
    assert.ok(draws.every(({ length }) => length >= least && length <= most));
    assert.deepEqual(new Set(draws.flat()), new Set(tests), `${name}, one of ${parts}`);
  }
});

test("what one seed draws of two lists is apart", () => {
  const pairs = Array.from({ length: 64 }, (_, seed) =>
    ["storage", "demo"].map((what) => drawnWith(seed, what, ["a", "b"], 2)).join(),
  );
  assert.equal(new Set(pairs).size, 4);
});

test("of twelve seeds in a row one or more run a case in each of its hosts", async () => {
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

test("of the cases that touch the host the seed draws half, each in one host", async () => {
  for (const [body, { whole, smoke = [], always = [], full }] of Object.entries(PLACES)) {
    const { cases } = await import(`./pkg/bodies/${body}.mjs`);
    const others = ["node", "chromium", "firefox"].filter((host) => !whole.includes(host));
    const drawn = full || others.length === 0 ? [] : smoke.filter((name) => !always.includes(name));
    for (const name of drawn) {
      const runs = [0, 1, 2, 3].map((turn) =>
        others.filter((host) => placed(body, Object.keys(cases), host, turn).includes(name)),
      );
      assert.ok(
        runs.every(({ length }) => length <= 1),
        `${body}: ${name} runs twice`,
      );
      assert.equal(runs.flat().length, 2, `${body}: ${name}`);
    }
  }
});

test("each seed saves a model for transformers to read", async () => {
  const { cases } = await import("./pkg/bodies/fixtures.mjs");
  for (let turn = 0; turn < 12; turn++) {
    const names = placed("fixtures", Object.keys(cases), "node", turn);
    assert.ok(
      names.some((name) => name.includes(" saved ")),
      `seed ${turn}`,
    );
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
