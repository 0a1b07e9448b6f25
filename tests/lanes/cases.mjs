// Which cases of a kernel lane run, by their keys.
import { basename } from "node:path";
import { softwareOnly } from "../../scripts/machine.mjs";
import { caseKey, laneKey } from "../gate/inputs.mjs";
import { gateMode, openTests } from "../gate/passed.mjs";
import { keyed, ofShard, shard, wanted } from "./level.mjs";

/** Keys hold for one driver. Of a GPU's driver no version is known, and it is fast: there everything runs. */
const withKeys = () => keyed && softwareOnly() && !wanted;

/** The lane as one test: of a file of keys of its own, since those of the cases are many. */
const openLane = (host) =>
  openTests(`lane-${host}`, [{ name: host, group: "lane", key: laneKey(host) }]);

/** Whether nothing that the lane depends on has changed since it passed. */
export const lanePassed = (host) => withKeys() && openLane(host).run.length === 0;

/** Of the cases that make sessions the core has every so-manieth. */
const SESSIONS_ONE_OF = 8;

/**
 * The core of a lane's cases: of those that run kernels by themselves so many that each kernel of the devices' own choice
 * runs once in each variant, those with most new ones for their jobs first; and some of those that make sessions.
 *
 * @param cases - `[{ name, session, kernels, jobs }]`.
 * @returns their names.
 */
export function coreOfCases(cases) {
  const core = new Set();
  for (const [index, { name }] of cases.filter(({ session }) => session).entries())
    if (index % SESSIONS_ONE_OF === 0) core.add(name);
  const missing = new Set(cases.flatMap(({ kernels }) => kernels));
  const worth = ({ kernels, jobs }) =>
    kernels.filter((kernel) => missing.has(kernel)).length / (jobs + WORTH_A_CASE);
  while (missing.size > 0) {
    const best = cases.reduce((best, one) => (worth(one) > worth(best) ? one : best));
    core.add(best.name);
    for (const kernel of best.kernels) missing.delete(kernel);
  }
  return core;
}

/** What a case costs besides its jobs, in jobs. */
const WORTH_A_CASE = 4;

/**
 * The cases of a lane that are to run.
 *
 * @param host - "native" or a browser.
 * @param names - of all cases.
 * @param list - gives what some of them depend on, as `listCases` of lane.mjs. It is called only where keys count.
 * @returns as `openTests`.
 */
export async function openCases(host, names, list) {
  const mine = ofShard(
    names.filter((name) => name.includes(wanted)),
    shard,
  );
  if (!withKeys() || gateMode() === "full") {
    return { run: mine.map((name) => ({ name, core: false })), left: 0, passed() {}, ended() {} };
  }
  const cases = (await list(mine)).map((listings) => ({
    name: listings[0].name,
    group: basename(listings[0].file, ".rs"),
    key: caseKey(host, listings),
    session: listings.every(({ key }) => key === null),
    kernels: listings.flatMap(({ kernels }) => kernels),
    jobs: listings.reduce((sum, { jobs }) => sum + jobs, 0),
  }));
  // Two sets: any source makes all cases with sessions new, and these must not make a few kernels' cases the most.
  const sets = [cases.filter(({ session }) => !session), cases.filter(({ session }) => session)];
  const [kernels, sessions] = sets.map((tests, index) =>
    openTests(`${["kernels", "sessions"][index]}-${host}`, tests),
  );
  const setOf = (name) => (sets[0].some((one) => one.name === name) ? kernels : sessions);
  const core = coreOfCases(cases);
  const outside = (one) => one.core && !core.has(one.name);
  const chosen = [...kernels.run, ...sessions.run];
  const ended = () => {
    if (shard[1] > 1) return;
    // The core of the others is empty.
    for (const { name } of chosen.filter(outside)) setOf(name).passed(name);
    kernels.ended();
    sessions.ended();
    const lane = openLane(host);
    for (const { name } of lane.run) lane.passed(name);
    lane.ended();
  };
  return {
    run: chosen.filter((one) => !outside(one)),
    left: kernels.left + sessions.left,
    passed: (name) => setOf(name).passed(name),
    ended,
  };
}
