// What a test file leaves out where its core is enough: scripts/test.mjs says so by TINYLOOM_CORE. A file that is named on
// the command line runs whole, and so does each in `npm run test:rest` and `npm run test:full`.
import { test } from "node:test";

/** Why a test is skipped that the core does not have. */
export const IN_REST = "npm run test:rest runs it";

/** Whether this file's core is enough. */
export const core = process.env.TINYLOOM_CORE === "1";

/** Of a list what runs: in the core every so-manieth, from the first on. */
export const coreOf = (list, every) => (core ? list.filter((_, i) => i % every === 0) : list);

/** The runner's `test`, for a test of minutes that the core does not have. */
export const longTest = core ? (title) => test(title, { skip: IN_REST }) : test;

/** Whether clocks are held to account: `npm run test:timed`, on a machine that does nothing else. */
export const timed = process.env.TINYLOOM_TIMED === "1";
