/** Adds to a model that snapshots are taken: so rarely that they cost less than a hundredth of the time. */

import { bytesOf } from "../checkpoint-writer.js";
import { toError } from "../error.js";
import type { RawHandle } from "../raw-handle.js";
import { dispose } from "../raw-handle.js";
import type { RawModel, RawSnapshot } from "../raw-types.js";
import { cut, type Entry, type RecoveredTrainer, Step } from "./action-log.js";
import type { DeviceRecovery } from "./device-recovery.js";
import type { Origin } from "./origin.js";
import { fileOf, type Snapshot, type SnapshotOfTrainer, type StoredSnapshot } from "./snapshot.js";

/** Bytes of host memory that snapshots may take, unless the page says otherwise. */
const MOST_BYTES = 512 << 20;
/** Milliseconds from the beginning of one that fails to the next. */
const PAUSE = 10_000;
/** Failures in a row after which there are none any more. */
const MOST_FAILURES = 3;
/** Once the times of twice as many steps are remembered, this number of the oldest are dropped. */
const REMEMBERED = 64;
/** The times of this many steps in a row are averaged: a browser may report several steps at once. */
const AVERAGED = 8;
/** Steps since the checkpoint of a run that are kept to be repeated. */
const MOST_ENTRIES = 20_000;
/** Snapshots whose cost is remembered. */
const COSTS = 4;

/** What is under way. */
interface Taking {
  readonly copies: Promise<readonly RawSnapshot[]>;
  readonly members: readonly RecoveredTrainer[];
  /** The entry that it is taken after. */
  readonly last: Entry | undefined;
  readonly began: number;
  /** When the last step before it ended, and the steps since. */
  readonly after: number | undefined;
  steps: number;
  spoilt: boolean;
  /** Settles when it is whole, or has failed. */
  done: Promise<void>;
}

/** What snapshots are taken of. */
export interface Snapshotted {
  readonly device: DeviceRecovery;
  readonly handle: RawHandle<RawModel>;
  readonly origin: Origin;
  trainers: RecoveredTrainer[];
  readonly log: Entry[];
}

/** The snapshots of one model and its trainers. */
export class SnapshotSchedule {
  /** The last whole one. */
  newest: Snapshot | StoredSnapshot | undefined;
  /** The last one whose weights, or later ones, gave a sound loss. */
  good: Snapshot | StoredSnapshot | undefined;
  /** Why there are none and the model does not come back. */
  off: string | undefined;
  /** Whether memory may not hold one: then checkpoints of a run serve. */
  #tooLarge = false;
  /** When the next one is due; tests set it. */
  due: number | undefined;
  readonly #model: Snapshotted;
  /** Milliseconds between the ends of two steps, where none was taken. */
  readonly #times: number[] = [];
  /** When the last step ended. */
  #ended: number | undefined;
  #taking: Taking | undefined;
  /** Milliseconds that the last ones cost, and how many of the next one have been waited for. */
  readonly #costs: number[] = [];
  #paid = 0;
  #failures = 0;

  constructor(model: Snapshotted) {
    this.#model = model;
  }

  /** In the model's turn, before a step: takes one if it is due. */
  maybe(): void {
    if (this.#tooLarge) this.#bound();
    if (this.off || this.#tooLarge || this.#taking || this.#unproven()) return;
    const now = performance.now();
    this.due ??= this.#first(now);
    if (this.off || now < this.due || !this.#changed()) return;
    this.due = now + PAUSE;
    try {
      this.#begin(now);
    } catch (error) {
      this.#failed(error);
    }
  }

  /** In the model's turn: takes one that has all steps, and waits for it. */
  async fresh(): Promise<void> {
    await this.#taking?.done;
    if (this.off || this.#tooLarge || this.#model.log.length === 0) return;
    try {
      this.#begin(performance.now());
    } catch (error) {
      this.#failed(error);
    }
    await this.#taking?.done;
  }

  /** Whether no step has proved the newest one: the next one would be of ruined weights, and memory holds two. */
  #unproven(): boolean {
    const { newest, good } = this;
    return good !== undefined && newest !== good && this.#model.log.length < MOST_ENTRIES;
  }

  /** The newest one is good once a step that began after it gave a sound loss. */
  #prove(): void {
    const proves = (entry: Entry) => entry instanceof Step && entry.sound;
    if (this.newest !== this.good && this.#model.log.some(proves)) this.good = this.newest;
  }

  /** A step has ended well. */
  stepped(): void {
    if (this.off) return;
    this.#prove();
    const now = performance.now();
    if (this.#taking) this.#taking.steps += 1;
    else if (this.#ended !== undefined) this.#times.push(now - this.#ended);
    if (this.#times.length >= 2 * REMEMBERED) this.#times.splice(0, REMEMBERED);
    this.#ended = now;
  }

  /** In the model's turn: a run has the model as it is now. It serves where memory may not hold a snapshot. */
  kept(snapshot: StoredSnapshot): void {
    if (!this.#tooLarge) return;
    this.off = undefined;
    this.newest = snapshot;
    cut(this.#model.log);
    const { device } = this.#model;
    device.tell({
      state: "snapshot",
      steps: [snapshot.steps],
      bytes: 0,
      milliseconds: 0,
      cost: 0,
    });
  }

  /** Steps that are repeated after a run's checkpoint take memory too. */
  #bound(): void {
    if (this.off || this.#model.log.length < MOST_ENTRIES) return;
    this.#stop(`${MOST_ENTRIES} steps were not saved into its run; save more often`);
  }

  /** A step has failed that the one under way may have counted. */
  spoil(): void {
    if (this.#taking) this.#taking.spoilt = true;
  }

  /** Bytes of one snapshot. */
  #bytes(): number {
    const { handle, trainers } = this.#model;
    const alive = trainers.filter(({ handle }) => !handle.freed);
    return bytesOf(handle.raw, ...alive.map((trainer) => trainer.handle.raw));
  }

  /** When the first one is due: at once, unless what it began with can be made again. */
  #first(now: number): number {
    const { device, origin } = this.#model;
    const bytes = this.#bytes();
    const { snapshotBytes = MOST_BYTES } = device.options;
    if (2 * bytes > snapshotBytes) {
      this.#tooLarge = true;
      this.#stop(
        `snapshots of ${bytes} bytes take twice that of the host's memory, and recover.snapshotBytes allows ` +
          `${snapshotBytes}: its steps since then are on the lost device alone; allow more, or train with a checkpoint ` +
          "in a run of tinyloom/storage, which then serves",
      );
    }
    if (!origin.seeded) return now;
    this.#paid = bytes / device.rate;
    return now + this.#wait(this.#paid);
  }

  /** Whether there are steps enough that the newest one has not. */
  #changed(): boolean {
    const { log, origin, device } = this.#model;
    if (!(this.newest || origin.seeded)) return true;
    const steps = log.filter((entry) => entry instanceof Step);
    return steps.length >= (device.options.snapshotSteps ?? 1);
  }

  #begin(began: number): void {
    const { handle, log, trainers } = this.#model;
    const alive = trainers.filter(({ handle }) => !handle.freed);
    const copies: Promise<RawSnapshot>[] = [];
    try {
      for (const trainer of alive) {
        const copy = trainer.handle.raw.snapshot();
        if (!copy) {
          this.due = began; // in the middle of an accumulation: after the next step
          drop(copies);
          return;
        }
        copies.push(copy);
      }
      copies.push(handle.raw.snapshot());
    } catch (error) {
      drop(copies);
      throw error;
    }
    const taking: Taking = {
      copies: Promise.all(copies),
      members: alive,
      last: log.at(-1),
      began,
      after: this.#ended,
      steps: 0,
      spoilt: false,
      done: Promise.resolve(),
    };
    this.#taking = taking;
    const held = performance.now() - began;
    taking.done = this.#read(taking, held)
      .catch((error: unknown) => this.#failed(error))
      .finally(() => {
        this.#taking = undefined;
        drop(copies);
      });
  }

  async #read(taking: Taking, held: number): Promise<void> {
    const { began, members, last } = taking;
    const copies = await taking.copies;
    const trainers: [RecoveredTrainer, SnapshotOfTrainer][] = [];
    for (const [index, member] of members.entries()) {
      const copy = copies[index] as RawSnapshot;
      const state = await copy.state();
      const { progress } = JSON.parse(state) as { progress: { step: number } };
      trainers.push([member, { moments: await fileOf(copy), state, steps: progress.step }]);
    }
    const weights = await fileOf(copies[members.length] as RawSnapshot);
    const { log, device } = this.#model;
    const at = last ? log.indexOf(last) + 1 : 0;
    if (taking.spoilt || (last && at === 0) || this.#model.handle.freed) return;
    const config = this.#model.handle.raw.config();
    this.newest = { config, weights, trainers: new Map(trainers) };
    cut(log, 0, at);
    this.#prove();
    this.#model.trainers = this.#model.trainers.filter(({ handle }) => !handle.freed);
    this.#failures = 0;
    const milliseconds = performance.now() - began;
    const cost = this.#cost(taking, held, milliseconds);
    this.#plan(cost, held);
    const bytes = trainers.reduce((sum, [, { moments }]) => sum + moments.data.length, 0);
    device.tell({
      state: "snapshot",
      steps: trainers.map(([, { steps }]) => steps),
      bytes: bytes + weights.data.length,
      milliseconds,
      cost,
    });
  }

  /** Milliseconds in which so much of the time has passed that a snapshot may take this long. */
  #wait(cost: number): number {
    const { least, share } = this.#model.device.pace;
    return Math.max(least, cost / share);
  }

  /** When the next one is due: what the last one cost beyond what had been waited for is waited for too. */
  #plan(cost: number, held: number): void {
    const { device } = this.#model;
    const owed = Math.max(0, cost - this.#paid);
    this.#costs.push(cost);
    if (this.#costs.length > COSTS) this.#costs.shift();
    this.#paid = Math.max(held, this.#costs.reduce((sum, one) => sum + one) / this.#costs.length);
    this.due = performance.now() + this.#wait(this.#paid + owed);
    // Of the next model, whose own are not known yet.
    if (this.#paid > 0) device.rate = this.#bytes() / this.#paid;
  }

  /** Milliseconds by which the steps beside it ended later; where none ended, all that it took. */
  #cost({ after, steps }: Taking, held: number, milliseconds: number): number {
    const usual = this.#usual();
    if (usual === undefined || after === undefined || steps === 0) return milliseconds;
    const ended = this.#ended ?? after;
    const under = Math.max(0, performance.now() - ended - usual);
    return Math.min(milliseconds, Math.max(held, ended - after - steps * usual + under));
  }

  /** Milliseconds from the end of a step to the end of the next. */
  #usual(): number | undefined {
    const all = this.#times;
    const length = all.length < AVERAGED ? 1 : AVERAGED;
    const means: number[] = [];
    for (let at = all.length; at >= length; at -= length) {
      means.push(all.slice(at - length, at).reduce((sum, one) => sum + one) / length);
    }
    return means.sort((a, b) => a - b)[means.length >> 1];
  }

  #failed(thrown: unknown): void {
    const error = toError(thrown);
    // Of a lost device the model hears, and of one that was freed nobody needs to.
    if (error.code === "device-lost" || error.code === "freed") return;
    this.#failures += 1;
    if (this.#failures >= MOST_FAILURES) {
      this.#stop(`no snapshot of it could be taken (${error.message})`);
    }
  }

  #stop(why: string): void {
    this.off = why;
    this.newest = undefined;
    this.good = undefined;
    cut(this.#model.log);
    const message = `a model has no snapshots and does not come back from a lost device: ${why}`;
    this.#model.device.tell({ state: "snapshots-off", message });
  }
}

/** Ends copies that nobody needs any more, whenever they arrive. */
function drop(copies: readonly Promise<RawSnapshot>[]): void {
  for (const copy of copies) copy.then(dispose, () => undefined);
}
