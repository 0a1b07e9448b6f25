// The bodies of the public API's tests by host, and which of them run, by their keys.
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { root } from "../../scripts/lib.mjs";
import { closureOf, hashOf, productKey, readHash, versionOf } from "../gate/inputs.mjs";
import { keyOf } from "../gate/key.mjs";
import { leftIn, openTests } from "../gate/passed.mjs";
import { placed } from "./bodies/hosts.mjs";
import { pathOf } from "./bodies/run.mjs";

/** Their tests have files of their own. */
const OTHERS = ["storage/storage", "worker/worker"];

/** The modules in folders tests/AREA/bodies, as AREA/NAME. */
function modulesOfBodies() {
  const areas = readdirSync(join(root, "tests")).sort();
  return areas.flatMap((area) => {
    const folder = join(root, "tests", area, "bodies");
    const files = existsSync(folder) ? readdirSync(folder).sort() : [];
    return files.map((file) => `${area}/${file.slice(0, -".mjs".length)}`);
  });
}

/** All bodies: modules that export `cases`. One that makes something `before` the module is loaded comes first. */
async function allBodies() {
  const found = [];
  for (const body of modulesOfBodies()) {
    const path = pathOf(body);
    const { cases, before, place } = await import(new URL(`../../${path}`, import.meta.url));
    if (!cases || OTHERS.includes(body)) continue;
    if (!place) throw new Error(`${path} exports no place: see hosts.mjs`);
    const turn = before ? 0 : place.early ? 1 : 2;
    found.push({ body, turn, place, names: Object.keys(cases) });
  }
  return found.sort((a, b) => a.turn - b.turn);
}

/** The names of the bodies: of those that hold times to account, which `npm run test:timed` runs, or of the others. */
export const bodyNames = async (timed) =>
  (await allBodies()).filter(({ place }) => Boolean(place.timed) === timed).map(({ body }) => body);

/** What runs bodies in a host: the host's test file with its imports, which are none of the bodies. */
async function around(host) {
  const { modules, reads } = await closureOf(`tests/api/${host}.test.mjs`);
  return keyOf(hashOf(modules), readHash(reads));
}

/** What the test of each body depends on in a host. */
async function testsOf(host) {
  const [own, version] = [await around(host), versionOf(host)];
  const tests = [];
  for (const { body, place, names } of await allBodies()) {
    if (place.timed || placed(place, names, host, false).length === 0) continue;
    const { modules, reads } = await closureOf(pathOf(body));
    const files = [hashOf(modules), readHash(reads)];
    const keyWith = (made) => keyOf(...files, own, productKey(made), version);
    tests.push({ name: body, group: body, keyWith });
  }
  return tests;
}

/** Which cases of some bodies a host leaves to others. */
async function elsewhere(host, run) {
  const bodies = (await allBodies()).filter(({ body }) => run.some(({ name }) => name === body));
  return bodies.flatMap(({ body, place, names }) => {
    const count = names.length - placed(place, names, host, false).length;
    const cure = `npm test -- api/${place.whole[0]} runs all, and place.smoke of the body names those of each host`;
    return count > 0 ? [`${count} cases of ${body} do not run here: ${cure}`] : [];
  });
}

/**
 * The bodies of a host that are to run, as `openTests` gives them; of these those that the variable TINYLOOM_BODY names, with
 * `notes` about cases of theirs that other hosts run.
 */
export async function openBodies(host) {
  const opened = openTests(`api-${host}`, await testsOf(host));
  const part = process.env.TINYLOOM_BODY;
  if (!part) return { ...opened, notes: [] };
  const run = opened.run.filter(({ name }) => name.includes(part));
  const how = `TINYLOOM_BODY=${part} npm test -- api/${host}`;
  if (run.length === 0) throw new Error(`no body that is to run has "${part}" in its name: ${how}`);
  return { ...opened, run, notes: await elsewhere(host, run), ended() {} }; // the others keep their keys
}

/** A host's bodies as a file of tests: whether any is to run, and how many have not passed whole. */
export const hostState = async (host) => ({
  run: (await openBodies(host)).run.length > 0,
  left: leftIn(`api-${host}`),
});
