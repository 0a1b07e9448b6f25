// How much the lanes run, and what they show meanwhile.

/** Whether to run the products that the everyday cases sample: `npm run test:full`. */
export const full = process.env.TINYLOOM_LEVEL === "full";

/** Milliseconds that a lane may take on software adapters. */
export const laneTimeout = full ? 6 * 3_600_000 : 1_500_000;

let lastLine = 0;

/** Shows a line of progress: on a terminal each in place, else at most two a minute. */
export function showProgress(name, text) {
  const now = Date.now();
  if (process.stderr.isTTY) process.stderr.write(`\r\x1b[2K${name} ${text}`);
  else if (now - lastLine > 30_000) process.stderr.write(`${name} ${text}\n`);
  else return;
  lastLine = now;
}

/** Clears the line of progress. */
export function endProgress() {
  if (process.stderr.isTTY) process.stderr.write("\r\x1b[2K");
}
