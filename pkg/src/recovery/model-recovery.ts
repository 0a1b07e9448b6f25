/** What a model and its trainers come back by: a snapshot, or how they began, and what was done since. */

import { either } from "../abortable.js";
import { TinyloomError, toError } from "../error.js";
import { stored } from "../internal.js";
import type { ModelNotes } from "../notes.js";
import { end, type Guard, type Handle, type Queue } from "../raw-handle.js";
import type { SaveOptions } from "../save-options.js";
import type { RawLoader, RawModel, RawRuntime, RawTrainer, Seen } from "../wasm-instance.js";
import { cut, type Entry } from "./action-log.js";
import type { Recovery } from "./device-recovery.js";
import { Repeat } from "./replay.js";
import { fileOf, loadAgain, restored } from "./snapshot.js";
import { Snapshots } from "./snapshot-schedule.js";
import { Member } from "./trainer-recovery.js";

export type { Member } from "./trainer-recovery.js";

/** How a model began. */
export interface Origin {
  /** Makes it again; a resumed one with its trainer. */
  again(on: RawRuntime, seen: Seen): Promise<{ model: RawModel; trainer?: RawTrainer }>;
  /** Whether it is a function of numbers alone, and so the same whenever it is made again. */
  readonly seeded?: true;
  /** What was seen of what it was loaded from. */
  readonly seen?: Seen;
  /** What the files of a model say besides. */
  readonly notes?: ModelNotes | undefined;
  /** An adapter has names of its files, what takes its tensors, and what the model under it comes back by. */
  readonly adapted?: {
    readonly names: readonly string[];
    readonly under: Journal | undefined;
    loader(config: string): Promise<RawLoader>;
  };
}

interface Parts {
  readonly handle: Handle<RawModel>;
  readonly queue: Queue;
  readonly on: RawRuntime;
  readonly origin: Origin;
}

/** The journal of one model. */
export class Journal implements Guard<RawModel> {
  readonly recovery: Recovery;
  readonly handle: Handle<RawModel>;
  readonly queue: Queue;
  readonly origin: Origin;
  readonly snapshots: Snapshots;
  members: Member[] = [];
  /** Steps of freed trainers that the model alone has, and no stored run. */
  left = 0;
  /** What was begun since the snapshot, in order. */
  readonly log: Entry[] = [];
  /** The raw runtime that its raw objects are on. */
  #on: RawRuntime;
  #restoring: Promise<void> | undefined;
  #gone: TinyloomError | undefined;

  constructor(recovery: Recovery, { handle, queue, on, origin }: Parts) {
    this.recovery = recovery;
    this.handle = handle;
    this.queue = queue;
    this.origin = origin;
    this.#on = on;
    this.snapshots = new Snapshots(this);
  }

  /** Why it does not come back, while other models of the runtime may. */
  get gone(): TinyloomError | undefined {
    return this.#gone;
  }

  /** Whether it is being brought back, or waits for a device. */
  get restoring(): boolean {
    return this.#restoring !== undefined;
  }

  /** The model has been freed: nothing of it is kept. */
  end(): void {
    this.snapshots.newest = undefined;
    this.snapshots.good = undefined;
    cut(this.log);
    this.recovery.forget(this);
  }

  /** A new trainer of the model, or with `options` undefined the one that was resumed with it. */
  join(handle: Handle<RawTrainer>, options: string | undefined): Member {
    const member = new Member(this, handle, options);
    this.members.push(member);
    return member;
  }

  /** Steps of its trainers that no stored run has, also of those that were freed. */
  unsaved(): number {
    return this.members.reduce((sum, member) => sum + member.unsaved(), this.left);
  }

  /** In the model's turn: the model was saved without a trainer. */
  saved({ to }: SaveOptions): void {
    if (stored.find(to)) this.left = 0;
  }

  /** In the model's turn: it serves on the newest device from then on. */
  current(): Promise<void> {
    return this.restored(() => this.#on === this.recovery.raw);
  }

  /**
   * In the model's turn: an adapter is about to be merged into it.
   *
   * @returns to be called when it was.
   */
  async merging(adapter: RawModel): Promise<() => void> {
    const { module } = this.recovery;
    // Steps of others are not to be done again on the changed weights.
    for (const other of this.recovery.sharing(this.queue)) {
      if (other !== this && other.handle.raw !== adapter) await other.snapshots.fresh();
    }
    const copy = await adapter.snapshot();
    const weights = await fileOf(copy).finally(() => end(copy));
    const config = adapter.config();
    const merge = async (model: RawModel) => {
      const again = await loadAgain(module, await model.adaptAs(config), weights);
      await again.merge(() => false).finally(() => end(again));
    };
    return () => void this.log.push({ merge });
  }

  async back(_: TinyloomError, failed: RawModel, signal?: AbortSignal): Promise<void> {
    await this.restored(() => this.handle.raw !== failed, signal);
  }

  unless<T>(call: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
    return this.recovery.unless(call, signal);
  }

  /** In the model's turn: waits until `done`, which the next recovery brings about. */
  async restored(done: () => boolean, signal?: AbortSignal): Promise<void> {
    while (!done()) {
      if (this.#gone) {
        cut(this.log);
        throw this.#gone;
      }
      this.#restoring ??= this.#restore().finally(() => {
        this.#restoring = undefined;
      });
      await either(this.#restoring, signal);
    }
  }

  /** Comes back in its turn, even if nobody calls. */
  restoreSoon(): void {
    const restore = async () => this.handle.freed || (await this.current());
    this.queue.run(restore).catch(() => undefined); // a call will hear of it
  }

  async #restore(): Promise<void> {
    try {
      await this.recovery.back(undefined, this.#on);
      for (;;) {
        const on = this.recovery.raw;
        try {
          return await this.recovery.module.guarded(() => this.#build(on));
        } catch (thrown) {
          const error = toError(thrown);
          // Another device brings neither this model back nor the one under it.
          const final = [this.#gone, this.origin.adapted?.under?.gone];
          if (error.code !== "device-lost" || final.includes(error)) throw error;
          await this.recovery.back(error, on);
        }
      }
    } catch (thrown) {
      void this.handle.raw; // freed meanwhile
      void this.recovery.raw;
      this.#gone ??= this.recovery.failed ?? this.#lostFor(toError(thrown));
      cut(this.log);
      throw this.#gone;
    }
  }

  #lostFor(cause: TinyloomError): TinyloomError {
    const what = this.origin.adapted ? "adapter" : "model";
    const message = `the ${what} does not come back from the lost GPU device: ${cause.message}`;
    this.recovery.tell({ state: "failed", message });
    return new TinyloomError("device-lost", message, { cause });
  }

  /** Makes everything again, does again what was done since, and takes it into use. */
  async #build(on: RawRuntime): Promise<void> {
    const { module } = this.recovery;
    const { newest, off } = this.snapshots;
    if (off) {
      this.#gone = this.#lostFor(new TinyloomError("device-lost", off));
      throw this.#gone;
    }
    const raws = new Map<Member, RawTrainer>();
    let model: RawModel | undefined;
    try {
      model = newest
        ? await restored(module, on, newest, raws, this.origin)
        : await this.#begin(on, raws);
      for (const member of this.members) {
        if (raws.has(member) || member.options === undefined) continue;
        raws.set(member, await module.RawTrainer.create(model, member.options, () => false));
      }
      const repeat = new Repeat(this, model, raws);
      await repeat.all();
      // From here on nothing waits: nobody sees a part of it.
      this.#serve(on, model, raws);
      repeat.told();
    } catch (error) {
      for (const raw of [...raws.values(), ...(model ? [model] : [])]) end(raw);
      throw error;
    }
  }

  #serve(on: RawRuntime, model: RawModel, raws: ReadonlyMap<Member, RawTrainer>): void {
    void this.handle.raw;
    for (const [member, raw] of raws) {
      if (member.handle.freed) end(raw);
      else member.handle.swap(raw);
    }
    this.handle.swap(model);
    this.#on = on;
  }

  /** Makes the model as it was made at first. */
  async #begin(on: RawRuntime, raws: Map<Member, RawTrainer>): Promise<RawModel> {
    const seen = { sum: 0 };
    const { model, trainer } = await this.origin.again(on, seen).catch((cause) => {
      const error = toError(cause);
      if (error.code === "device-lost") throw error;
      throw new TinyloomError(error.code, `its source cannot be read again (${error.message})`, {
        cause,
      });
    });
    const resumed = this.members.find((member) => member.options === undefined);
    if (trainer && resumed) raws.set(resumed, trainer);
    else if (trainer) end(trainer);
    if (this.origin.seen && this.origin.seen.sum !== seen.sum) {
      end(model);
      throw new TinyloomError(
        "invalid-checkpoint",
        "its source has changed since it was loaded; load it again",
      );
    }
    return model;
  }
}
