// What a run of tests left out, and why, for the last lines of `npm test`.
import { relative } from "node:path";
import { root } from "./lib.mjs";

/**
 * Notes the tests that are skipped.
 *
 * @param stream - of Node's `run`.
 * @param lines - gets `FILE, TEST: REASON` of each, once.
 */
export function noteLeftOut(stream, lines) {
  stream.on("test:pass", ({ name, file, skip }) => {
    if (!skip) return;
    const reason = skip === true ? "no reason given" : skip;
    lines.add(`${relative(root, file)}, ${name}: ${reason}`);
  });
}
