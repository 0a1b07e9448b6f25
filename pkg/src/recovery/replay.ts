/** Does again, on new raw objects, what was done to a model since a snapshot. */

import { type TinyloomError, toError } from "../error.js";
import { metricsOf } from "../metrics.js";
import type { RawMetrics, RawModel, RawTrainer } from "../raw-types.js";
import { type Change, cut, type Entry, type RecoveredTrainer, Step } from "./action-log.js";
import type { DeviceRecovery } from "./device-recovery.js";
import type { RepeatedStep } from "./types.js";

export class Replay {
  readonly #device: DeviceRecovery;
  readonly #log: Entry[];
  readonly #model: RawModel;
  readonly #raws: ReadonlyMap<RecoveredTrainer, RawTrainer>;
  readonly #applied = new Set<Change>();
  /** The steps that the new objects have, whole or in part. */
  readonly #made = new Set<Step>();
  readonly #from = new Map<RecoveredTrainer, number>();
  /** What is told once the new objects serve: nobody goes on before that. */
  readonly #results: (() => void)[] = [];
  #steps = 0;
  /** Both losses of each step that had been given out. */
  readonly #losses: RepeatedStep[] = [];

  constructor(
    device: DeviceRecovery,
    log: Entry[],
    model: RawModel,
    raws: ReadonlyMap<RecoveredTrainer, RawTrainer>,
  ) {
    this.#device = device;
    this.#log = log;
    this.#model = model;
    this.#raws = raws;
    for (const [trainer, raw] of raws) this.#from.set(trainer, raw.steps());
  }

  /** All of the log, which may grow meanwhile. */
  async all(): Promise<void> {
    const log = this.#log;
    for (let at = 0; at < log.length; at++) {
      const entry = log[at] as Entry;
      if ("apply" in entry) {
        await entry.apply(this.#model);
        continue;
      }
      const raw = this.#raws.get(entry.trainer);
      if (!raw) continue;
      if (!(entry instanceof Step)) this.#change(entry, raw);
      else if (!entry.cancelled) await this.#step(entry, raw);
    }
  }

  /** Tells everyone who waits, now that the new objects serve. */
  told(): void {
    const log = this.#log;
    for (const tell of this.#results) tell();
    for (let at = log.length - 1; at >= 0; at--) {
      const entry = log[at];
      if (!(entry instanceof Step)) continue;
      // Who waited for it may have left meanwhile; the weights have it all the same.
      if (this.#made.has(entry)) entry.cancelled = false;
      else if (entry.cancelled || entry.error) cut(log, at, 1);
    }
    const milliseconds = performance.now() - this.#device.began;
    for (const [trainer, fromStep] of this.#from) {
      trainer.recovered = { fromStep, reason: this.#device.reason, milliseconds };
    }
    const repeated = this.#steps;
    this.#device.tell({ state: "recovered", repeated, losses: this.#losses, milliseconds });
  }

  #change(entry: Change, raw: RawTrainer): void {
    if (this.#applied.has(entry)) return;
    this.#applied.add(entry);
    entry.change(raw);
  }

  async #step(step: Step, raw: RawTrainer): Promise<void> {
    const { waiting } = step;
    let calls = 0;
    const stop = () => {
      calls += 1;
      this.#during(step, calls);
      return step.limit === undefined ? waiting && step.stop() : calls >= step.limit;
    };
    try {
      const metrics = await step.begin(raw, stop);
      this.#made.add(step);
      this.#steps += 1;
      if (waiting) {
        this.#results.push(() => {
          step.metrics = metrics;
        });
      } else if (step.metrics) this.#compare(step.metrics, metrics);
    } catch (thrown) {
      const error = toError(thrown);
      if (error.code === "device-lost" || (!waiting && step.limit === undefined)) throw error;
      if (calls > 0) this.#made.add(step);
      if (waiting) this.#refused(step, calls, error);
    }
  }

  /** The changes that were made while the step's parts were under way. */
  #during(step: Step, calls: number): void {
    for (const entry of this.#log) {
      if (!("change" in entry) || entry.after !== step || entry.calls >= calls) continue;
      const raw = this.#raws.get(entry.trainer);
      if (raw) this.#change(entry, raw);
    }
  }

  /** A step that its caller still waits for, and that fails now for a reason of its own. */
  #refused(step: Step, calls: number, error: TinyloomError): void {
    this.#results.push(() => {
      if (calls > 0) step.limit = calls;
      step.error = error;
    });
  }

  #compare(before: RawMetrics, after: RawMetrics): void {
    const [was, is] = [metricsOf(before), metricsOf(after)];
    const both = { step: was.step, loss: was.loss, repeated: is.loss };
    this.#losses.push(both);
    if (Object.is(was.loss, is.loss) && Object.is(was.gradNorm, is.gradNorm)) return;
    this.#device.tell({ state: "different", ...both });
  }
}
