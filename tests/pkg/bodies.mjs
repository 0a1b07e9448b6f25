// The bodies of the public API's tests by host, and which of them run, by their keys.
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { closureOf, hashOf, keyOf, readHash, setHash, versionOf } from "../gate/inputs.mjs";
import { gateMode, openTests } from "../gate/passed.mjs";
import { keyed } from "../lanes/level.mjs";
import { placed } from "./bodies/hosts.mjs";

const folder = join(import.meta.dirname, "bodies");
/** Their tests have files of their own. */
const OTHERS = ["storage", "worker"];

/** All bodies: modules that export `cases`. One that makes something `before` the module is loaded comes first. */
async function allBodies() {
  const found = [];
  for (const file of readdirSync(folder)) {
    const body = file.slice(0, -".mjs".length);
    const { cases, before, place } = await import(`./bodies/${file}`);
    if (!cases || OTHERS.includes(body)) continue;
    if (!place) throw new Error(`tests/pkg/bodies/${file} exports no place: see hosts.mjs`);
    found.push({ body, first: before !== undefined, place, names: Object.keys(cases) });
  }
  return found.sort((a, b) => Number(b.first) - Number(a.first));
}

/** The names of the bodies: of those that hold times to account, which `npm run test:timed` runs, or of the others. */
export const bodyNames = async (timed) =>
  (await allBodies()).filter(({ place }) => Boolean(place.timed) === timed).map(({ body }) => body);

/** What the test of each body depends on in a host. */
async function testsOf(host) {
  const product = ["locks", "rust", "shaders", "package"].map(setHash);
  const around = hashOf([
    ...["bodies", "harness", "node-host", "bodies/run", "bodies/hosts"].map(
      (name) => `tests/pkg/${name}.mjs`,
    ),
    ...["scripts/browser.mjs", "scripts/server.mjs", "tests/lanes/harness.mjs"],
  ]);
  const tests = [];
  for (const { body, place, names } of await allBodies()) {
    const runs = (core) => placed(place, names, host, core);
    if (place.timed || runs(false).length === 0) continue;
    const { modules, reads } = await closureOf(`tests/pkg/bodies/${body}.mjs`);
    const key = keyOf(hashOf(modules), readHash(reads), around, ...product, versionOf(host));
    tests.push({ name: body, group: body, key });
  }
  return tests;
}

/** The bodies of a host that are to run, as `openTests` gives them. */
export const openBodies = async (host) =>
  openTests(`api-${host}`, await testsOf(host), keyed ? gateMode() : "full", keyed);

/** Whether a host has no body to run. */
export const hostPassed = async (host) => (await openBodies(host)).run.length === 0;
