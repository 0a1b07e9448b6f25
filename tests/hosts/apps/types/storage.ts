// Runs that stay, without a worker.
import type { Trainer } from "tinyloom";
import {
  type RunFiles,
  type RunSummary,
  Runs,
  type RunsOptions,
  type StoredRun,
} from "tinyloom/storage";

export async function keep(trainer: Trainer, options: RunsOptions): Promise<number> {
  const runs: Runs = await Runs.open("app", options);
  const run: StoredRun = await runs.create("first", { options: { rate: 1 } });
  await trainer.save({ to: run });
  await run.close();
  const [newest]: RunSummary[] = await runs.list();
  const files: RunFiles = await runs.export("first");
  const whole: Blob = await runs.export("first", { zip: true });
  return Object.keys(files).length + whole.size + (newest?.checkpoints.length ?? 0);
}
