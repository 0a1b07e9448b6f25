// What a run of tests left out, and why, for the last lines of `npm test`.
import { relative } from "node:path";
import { root } from "./lib.mjs";

/** Why a test is skipped that the run's seed has not drawn. */
export const ANOTHER_SEED = "another seed runs it";

/**
 * Notes the tests that are skipped.
 *
 * @param stream - of Node's `run`.
 * @param lines - gets `FILE, TEST: REASON` of each, once.
 * @param others - gets the names of those that another seed runs.
 */
export function noteLeftOut(stream, lines, others = new Set()) {
  stream.on("test:pass", ({ name, file, skip }) => {
    if (!skip) return;
    if (skip === ANOTHER_SEED) return void others.add(name);
    const reason = skip === true ? "no reason given" : skip;
    lines.add(`${relative(root, file)}, ${name}: ${reason}`);
  });
}
