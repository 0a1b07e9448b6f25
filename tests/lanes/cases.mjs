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
  const tests = (await list(mine)).map((listings) => ({
    name: listings[0].name,
    group: basename(listings[0].file, ".rs"),
    key: caseKey(host, listings),
  }));
  const cases = openTests(`kernels-${host}`, tests);
  const ended = () => {
    if (shard[1] > 1) return;
    cases.ended();
    const lane = openLane(host);
    for (const { name } of lane.run) lane.passed(name);
    lane.ended();
  };
  return { ...cases, ended };
}
