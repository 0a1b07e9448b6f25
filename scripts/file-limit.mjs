// Loaded into each test file's process: ends it after a number of seconds. Otherwise a browser that hangs, or
// a promise that never settles, keeps the whole of `npm test` from ending.
import { relative } from "node:path";
import { isMainThread } from "node:worker_threads";
import { root } from "./lib.mjs";

const LOADED = ` --import=${import.meta.url}`;
const SECONDS = "TINYLOOM_FILE_SECONDS";

/** Environment of processes that end after so many seconds. */
export const limited = (seconds) => ({
  NODE_OPTIONS: `${process.env.NODE_OPTIONS ?? ""}${LOADED}`,
  [SECONDS]: String(seconds),
});

const seconds = process.env[SECONDS];
if (seconds && isMainThread) {
  // Only the file itself is limited, not the processes that it starts.
  delete process.env[SECONDS];
  process.env.NODE_OPTIONS = process.env.NODE_OPTIONS?.replace(LOADED, "");
  const end = () => {
    const file = relative(root, process.argv[1]);
    const open = process.getActiveResourcesInfo().join(", ");
    console.error(`${file} did not end within ${seconds} s; still open: ${open}`);
    process.exit(1); // browsers end with it
  };
  setTimeout(end, Number(seconds) * 1000).unref();
}
