/** When snapshots are taken: so rarely that they cost less than a hundredth of the time. */

import { toError } from "../error.js";
import { end } from "../handle.js";
import type { RawSnapshot } from "../raw.js";
import { bytesOf } from "../saving.js";
import type { StepMetrics } from "../trainer-types.js";
import { type Entry, type Journal, Step } from "./journal.js";
import type { Member } from "./member.js";
import { fileOf, type Snapshot } from "./snapshot.js";

/** Bytes of host memory that snapshots may take, unless the page says otherwise. */
const MOST_BYTES = 512 << 20;
/** Bytes per millisecond that are read back while the cost of a snapshot is not known. */
const GUESS = 5e5;
/** Milliseconds from the beginning of one that fails to the next. */
const PAUSE = 10_000;
/** Failures in a row after which there are none any more. */
const MOST_FAILURES = 3;
/** Steps whose times are remembered. */
const REMEMBERED = 32;

/** What is under way. */
interface Taking {
  readonly copies: Promise<readonly RawSnapshot[]>;
  readonly members: readonly Member[];
  /** The entry that it is taken behind. */
  readonly last: Entry | undefined;
  readonly began: number;
  /** Milliseconds of the steps that ended meanwhile. */
  readonly during: number[];
  spoilt: boolean;
}

/** The snapshots of one model and its trainers. */
export class Snapshots {
  /** The last whole one. */
  newest: Snapshot | undefined;
  /** Why there are none and the model does not come back. */
  off: string | undefined;
  readonly #journal: Journal;
  readonly #times: number[] = [];
  #taking: Taking | undefined;
  #due: number | undefined;
  #failures = 0;

  constructor(journal: Journal) {
    this.#journal = journal;
  }

  /** In the model's turn, before a step: takes one if it is due. */
  maybe(): void {
    if (this.off || this.#taking) return;
    const now = performance.now();
    this.#due ??= this.#first(now);
    if (this.off || now < this.#due || !this.#changed()) return;
    this.#due = now + PAUSE;
    try {
      this.#begin(now);
    } catch (error) {
      this.#failed(error);
    }
  }

  /** A step has ended well. */
  stepped(json: string): void {
    if (this.off) return;
    const { milliseconds } = JSON.parse(json) as StepMetrics;
    if (this.#taking) this.#taking.during.push(milliseconds);
    else this.#times.push(milliseconds);
    if (this.#times.length > REMEMBERED) this.#times.shift();
  }

  /** A step has failed that the one under way may have counted. */
  spoil(): void {
    if (this.#taking) this.#taking.spoilt = true;
  }

  /** Bytes of one snapshot. */
  #bytes(): number {
    const { handle, members } = this.#journal;
    const alive = members.filter((member) => !member.handle.freed);
    return bytesOf(handle.raw, ...alive.map((member) => member.handle.raw));
  }

  /** When the first one is due: at once, unless what it began with can be made again. */
  #first(now: number): number {
    const { recovery, origin } = this.#journal;
    const bytes = this.#bytes();
    const { snapshotBytes = MOST_BYTES } = recovery.options;
    if (2 * bytes > snapshotBytes) {
      this.#stop(
        `snapshots of ${bytes} bytes take twice that of the host's memory, and recover.snapshotBytes allows ` +
          `${snapshotBytes}: its steps since then are on the lost device alone; allow more, or save`,
      );
    }
    const { least, share } = recovery.pace;
    return origin.seeded ? now + Math.max(least, bytes / GUESS / share) : now;
  }

  /** Whether there is anything that the newest one has not. */
  #changed(): boolean {
    const stepped = this.#journal.log.some((entry) => entry instanceof Step);
    return stepped || !(this.newest || this.#journal.origin.seeded);
  }

  #begin(began: number): void {
    const { handle, log, members } = this.#journal;
    const alive = members.filter((member) => !member.handle.freed);
    const copies: Promise<RawSnapshot>[] = [];
    try {
      for (const member of alive) {
        const copy = member.handle.raw.snapshot();
        if (!copy) {
          this.#due = began; // in the middle of an accumulation: after the next step
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
      during: [],
      spoilt: false,
    };
    this.#taking = taking;
    const held = performance.now() - began;
    this.#read(taking, held)
      .catch((error: unknown) => this.#failed(error))
      .finally(() => {
        this.#taking = undefined;
        drop(copies);
      });
  }

  async #read(taking: Taking, held: number): Promise<void> {
    const { began, members, last } = taking;
    const copies = await taking.copies;
    const trainers: [
      Member,
      Snapshot["trainers"] extends ReadonlyMap<Member, infer T> ? T : never,
    ][] = [];
    for (const [index, member] of members.entries()) {
      const copy = copies[index] as RawSnapshot;
      const state = await copy.state();
      const { progress } = JSON.parse(state) as { progress: { step: number } };
      trainers.push([member, { moments: await fileOf(copy), state, steps: progress.step }]);
    }
    const weights = await fileOf(copies[members.length] as RawSnapshot);
    const { log, recovery } = this.#journal;
    const at = last ? log.indexOf(last) + 1 : 0;
    if (taking.spoilt || (last && at === 0) || this.#journal.handle.freed) return;
    this.newest = { weights, trainers: new Map(trainers) };
    log.splice(0, at);
    this.#journal.members = this.#journal.members.filter((member) => !member.handle.freed);
    this.#failures = 0;
    const milliseconds = performance.now() - began;
    const cost = this.#cost(taking, held, milliseconds);
    this.#due = began + milliseconds + Math.max(recovery.pace.least, cost / recovery.pace.share);
    const bytes = trainers.reduce((sum, [, { moments }]) => sum + moments.data.length, 0);
    recovery.tell({
      state: "snapshot",
      steps: trainers.map(([, { steps }]) => steps),
      bytes: bytes + weights.data.length,
      milliseconds,
      cost,
    });
  }

  /** Milliseconds by which the steps beside it took longer; where there was none, all that it took. */
  #cost({ during }: Taking, held: number, milliseconds: number): number {
    const usual = [...this.#times].sort((a, b) => a - b)[this.#times.length >> 1];
    if (usual === undefined || during.length === 0) return milliseconds;
    const longer = during.reduce((sum, one) => sum + one - usual, 0);
    return Math.min(milliseconds, Math.max(held, longer));
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
    this.#journal.log.length = 0;
    const message = `a model has no snapshots and does not come back from a lost device: ${why}`;
    this.#journal.recovery.tell({ state: "snapshots-off", message });
  }
}

/** Ends copies that nobody needs any more, whenever they arrive. */
function drop(copies: readonly Promise<RawSnapshot>[]): void {
  for (const copy of copies) copy.then(end, () => undefined);
}
