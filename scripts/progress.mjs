// The progress bar of the headless job, on stderr.

const WIDTH = 28;

/** Seconds as m:ss. */
const clock = (seconds) =>
  `${Math.floor(seconds / 60)}:${String(Math.floor(seconds % 60)).padStart(2, "0")}`;

/** Steps past the first (which compiles) to measure before the time left is shown. */
const MEASURED_STEPS = 3;

/**
 * The bar's line for a state of the job.
 *
 * @param seconds - since the training began.
 * @param first - seconds that the first step took.
 */
export function line({ step, steps, loss, tokensPerSecond, validationLoss }, seconds, first) {
  const share = steps > 0 ? Math.min(step / steps, 1) : 0;
  const full = Math.round(share * WIDTH);
  const bar = "█".repeat(full) + "░".repeat(WIDTH - full);
  const parts = [`${bar} ${step}/${steps}`];
  if (Number.isFinite(loss)) parts.push(`loss ${loss.toFixed(3)}`);
  if (Number.isFinite(validationLoss)) parts.push(`validation ${validationLoss.toFixed(3)}`);
  if (Number.isFinite(tokensPerSecond)) parts.push(`${Math.round(tokensPerSecond)} tokens/s`);
  parts.push(clock(seconds));
  if (step > MEASURED_STEPS && step < steps) {
    const left = ((seconds - first) / (step - 1)) * (steps - step);
    parts.push(`${clock(left)} left`);
  }
  return parts.join("  ");
}

/** Draws progress in place on a terminal; elsewhere a line every ten seconds. */
export class ProgressBar {
  #began = Date.now();
  /** Seconds that the first step took. */
  #first;
  #drawn = 0;
  #open = false;
  #stage = "";

  /** Takes what the job reports: `{ stage?, step, steps, loss, tokensPerSecond }`. */
  update(progress) {
    const now = Date.now();
    if (progress.steps === undefined || progress.step === undefined)
      return this.#note(progress.stage);
    this.#first ??= (now - this.#began) / 1000;
    const last = progress.step >= progress.steps;
    const every = process.stderr.isTTY ? 100 : 10_000;
    if (!last && now - this.#drawn < every) return;
    this.#drawn = now;
    const text = line(progress, (now - this.#began) / 1000, this.#first);
    if (process.stderr.isTTY) {
      process.stderr.write(`\r\x1b[2K${text}`);
      this.#open = true;
    } else {
      process.stderr.write(`${text}\n`);
    }
  }

  /** Ends the line. */
  end() {
    if (this.#open) process.stderr.write("\n");
    this.#open = false;
  }

  #note(stage) {
    if (!stage || stage === this.#stage) return;
    this.#stage = stage;
    this.end();
    process.stderr.write(`${stage}\n`);
    this.#began = Date.now();
  }
}
