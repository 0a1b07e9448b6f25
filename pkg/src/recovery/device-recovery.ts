/** Adds to a runtime that another device is opened when one is lost, and that its models hear of it. */

import { type Deferred, deferred, either, sleep } from "../abortable.js";
import type { CallQueue } from "../call-queue.js";
import { TinyloomError, toError } from "../error.js";
import { noteLoss } from "../gpu-adapter.js";
import { inNode } from "../node.js";
import { dispose, type RawHandle, type Restorer } from "../raw-handle.js";
import type { RawModel, RawModule, RawRuntime } from "../raw-types.js";
import type { LostInfo, Owned } from "../runtime-types.js";
import type { RecoverOptions, RecoveryState } from "./types.js";

/** Milliseconds for which Chromium may refuse adapters after a loss; two more seconds for its clock. */
const BLOCKED = 122_000;
/** Milliseconds after which a device that is lost again is no failure of the last recovery. */
const STABLE = 60_000;
/** Milliseconds between two requests for an adapter: at first, and at most. */
const [FIRST_PAUSE, LONGEST_PAUSE] = [250, 8000];

const waiting = () =>
  inNode()
    ? "no GPU adapter is found since the GPU was lost; one is asked for again for two minutes, and work goes on by " +
      "itself when there is one; to end the process ends the wait: "
    : "the browser gives this site no GPU after it was lost twice within two minutes; work goes on by itself when " +
      "it does, and a reload of the page by the user ends the wait: ";

/** What a reload, or the end of the process, loses. */
const losing = (unsaved: number) =>
  unsaved === 0
    ? "nothing is lost by it"
    : `it loses ${unsaved === 1 ? "1 step that is" : `${unsaved} steps that are`} in no stored run`;

/** What a runtime gives to be brought back. */
export interface Reopening {
  readonly module: RawModule;
  readonly handle: RawHandle<RawRuntime>;
  readonly owned: ReadonlySet<Owned>;
  /** Told of the raw runtime before it serves. */
  opened(raw: RawRuntime): void;
}

/** How a runtime's devices are opened. */
export interface Opening {
  /** Whether products are measured. */
  readonly tune: boolean;
  /** Asks for an adapter. */
  asking(): Promise<GPUAdapter>;
  open(adapter: GPUAdapter): Promise<RawRuntime>;
}

/** A model that comes back on the next device. */
export interface RecoveredModel {
  readonly queue: CallQueue;
  /** Steps of its trainers that no stored run has. */
  unsaved(): number;
  /** Comes back in its turn, even if nobody calls. */
  restoreSoon(): void;
  /** In its turn, since a replay may be walking its log: no step is done again. */
  dropSteps(): void;
  /** In its turn: takes a snapshot, unless it is that adapter. */
  snapshotBesides(adapter: RawModel | undefined): Promise<void>;
}

/** The life of a runtime's devices. */
export class DeviceRecovery implements Restorer<RawRuntime> {
  /** Settles when no device comes any more. */
  readonly lost: Promise<LostInfo>;
  readonly module: RawModule;
  readonly options: RecoverOptions;
  /** Milliseconds between two snapshots at least, and their share of the time; tests set them. */
  pace: { least: number; share: number };
  /** Bytes of a snapshot that cost a millisecond of the steps' time: a guess until one was taken. */
  rate = 2e6;
  /** The last loss, and when it was. */
  reason = "";
  began = 0;
  readonly #runtime: Reopening;
  readonly #opening: Opening;
  readonly #models = new Set<RecoveredModel>();
  #settle: (info: LostInfo) => void = () => {};
  /** Settles with the device that is being waited for. */
  #next: Deferred | undefined;
  #stopped: Deferred = deferred();
  #failures = 0;
  #opened = Number.NEGATIVE_INFINITY;
  #failed: TinyloomError | undefined;

  constructor(runtime: Reopening, options: RecoverOptions, opening: Opening) {
    this.#runtime = runtime;
    this.module = runtime.module;
    this.options = options;
    this.pace = { least: options.snapshotMilliseconds ?? 1000, share: 0.006 };
    this.#opening = opening;
    this.lost = new Promise((settle) => {
      this.#settle = settle;
    });
    this.#watch(runtime.handle.raw);
  }

  /** The raw runtime, or code "freed". */
  get raw(): RawRuntime {
    return this.#runtime.handle.raw;
  }

  /** Why there is no device any more. */
  get failed(): TinyloomError | undefined {
    return this.#failed;
  }

  async replaced(failed: RawRuntime, signal?: AbortSignal): Promise<void> {
    while (this.raw === failed) {
      if (this.#failed) throw this.#failed;
      // A call may fail before the loss is told.
      this.#next ??= deferred();
      await either(this.#next.promise, signal);
    }
  }

  orAborted<T>(call: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
    const worked = () => {
      this.#failures = 0;
    };
    call.then(worked, () => undefined);
    return either(call, signal, () => this.#next !== undefined);
  }

  /** A model is to come back. */
  add(model: RecoveredModel): void {
    this.#models.add(model);
  }

  /** It was freed. */
  forget(model: RecoveredModel): void {
    this.#models.delete(model);
  }

  /** A model and its adapters, which share a queue. */
  sharing(queue: CallQueue): RecoveredModel[] {
    return [...this.#models].filter((model) => model.queue === queue);
  }

  /** The runtime has been destroyed. */
  stop(): void {
    this.#stopped.resolve();
    this.#next?.resolve();
  }

  tell(state: RecoveryState): void {
    try {
      this.options.onState?.(state);
    } catch (error) {
      // There an error that nobody catches ends the process, and the recovery with it.
      if (inNode()) console.error("tinyloom: onState threw", error);
      else
        setTimeout(() => {
          throw error;
        });
    }
  }

  #watch(raw: RawRuntime): void {
    const { module } = this;
    module
      .guarded(() => raw.lost())
      .then(
        (json) => this.#lost(raw, JSON.parse(json) as LostInfo),
        (error: unknown) => this.#panicked(toError(error)),
      );
  }

  /** The instance of the module is gone, and the runtime with it; its snapshots are not. */
  #panicked(error: TinyloomError): void {
    const { message } = error;
    this.#failed = error;
    this.#giveUp(error);
    if (!this.#runtime.handle.freed) this.tell({ state: "failed", message });
    this.#settle({ reason: "unknown", message });
  }

  async #lost(raw: RawRuntime, info: LostInfo): Promise<void> {
    const { handle, owned } = this.#runtime;
    if (handle.freed) return this.#settle(info);
    const now = performance.now();
    // Some browsers end theirs as a sentence, and here it is a part of one.
    [this.reason, this.began] = [info.message.replace(/\.$/, ""), now];
    if (now - this.#opened > STABLE) this.#failures = 0;
    this.#next ??= deferred();
    noteLoss(info);
    this.tell({ state: "lost", reason: this.reason });
    for (const one of owned) one.lost?.();
    try {
      this.#count(undefined);
      await this.#reopen(raw);
      this.#next?.resolve();
      this.#next = undefined;
      for (const model of this.#models) model.restoreSoon();
    } catch (error) {
      if (this.module.panic) return this.#panicked(this.module.panic);
      if (!handle.freed) this.#fail(toError(error));
      this.#settle(handle.freed ? { ...info, reason: "destroyed" } : info);
    }
  }

  /** Counts a failure, and gives up after too many. */
  #count(error: TinyloomError | undefined): void {
    const { attempts = 5 } = this.options;
    // The first loss is none: there was work before it.
    if (this.#failures++ < attempts) return;
    throw error ?? new TinyloomError("device-lost", `it was lost ${this.#failures} times in a row`);
  }

  #fail(cause: TinyloomError): void {
    const message =
      `the GPU device was lost (${this.reason}) and does not come back: ${cause.message}; create a new ` +
      "Runtime, and resume from trainer.save(), which gives the last snapshot";
    this.#failed = new TinyloomError("device-lost", message, { cause });
    this.tell({ state: "failed", message });
    this.#giveUp(this.#failed);
  }

  /** No device comes any more, and no step is repeated. */
  #giveUp(error: TinyloomError): void {
    this.#next?.reject(error);
    this.#next = undefined;
    for (const model of this.#models) model.dropSteps();
  }

  async #reopen(old: RawRuntime): Promise<void> {
    let told = false;
    for (let pause = FIRST_PAUSE; ; pause = Math.min(2 * pause, LONGEST_PAUSE)) {
      void this.raw; // destroyed meanwhile
      let adapter: GPUAdapter | undefined;
      try {
        adapter = await this.#opening.asking();
        return this.#serve(old, await this.#opening.open(adapter));
      } catch (thrown) {
        if (this.module.panic) throw thrown;
        const left = this.began + BLOCKED - performance.now();
        if (adapter || left <= 0) this.#count(toError(thrown));
        else if (!told) {
          told = true;
          const unsaved = [...this.#models].reduce((sum, model) => sum + model.unsaved(), 0);
          const message = waiting() + losing(unsaved);
          this.tell({ state: "waiting", until: Date.now() + left, unsaved, message });
        }
      }
      await Promise.race([sleep(pause), this.#stopped.promise]);
    }
  }

  /** Takes the raw runtime into use. */
  #serve(old: RawRuntime, raw: RawRuntime): void {
    const { handle, opened } = this.#runtime;
    if (handle.freed) {
      dispose(raw);
      return void this.raw;
    }
    const adapter = (one: RawRuntime) => JSON.stringify(JSON.parse(one.capabilities()));
    const sameAdapter = adapter(raw) === adapter(old);
    // What was measured chooses the tiles, and these decide the bits.
    if (this.#opening.tune) raw.tune(sameAdapter ? old.tuned() : new Float64Array());
    opened(raw);
    handle.swap(raw);
    this.#opened = performance.now();
    this.#watch(raw);
    const milliseconds = this.#opened - this.began;
    this.tell({ state: "reopened", sameAdapter, milliseconds });
  }
}
