import { TinyloomError } from "../error.js";
import { expectMade, MADE } from "../inner.js";
import { inNode } from "../node.js";
import { check, flag, invalid, isA, show } from "../options.js";
import { persist } from "../page-services.js";
import { stored } from "../stored-runs.js";
import { checkpointsOf, verifyCheckpoint } from "./checkpoint.js";
import { type Disk, storing, verify, type Where } from "./disk.js";
import { openFolder } from "./folder.js";
import { blobsOf, describedBy, LOGS, writeCheckpoint } from "./imported.js";
import { Memory } from "./memory.js";
import { OriginPrivate } from "./opfs.js";
import {
  type Contents,
  copy,
  describe,
  descriptionOf,
  descriptionsOf,
  type RunRecord,
  type StoredFile,
} from "./record.js";
import { logsOf, METRICS, makeRun, type NotedMetrics, type StoredRun } from "./stored-run.js";
import {
  contentOf,
  OPTIONS,
  type RunContent,
  type RunFiles,
  type RunSummary,
  type RunsOptions,
} from "./types.js";
import { readZip, writeZip } from "./zip.js";

/** The lock of all that makes, renames or deletes a run. */
const NAMES = "names";
/** Milliseconds between two looks at it, at first and at most, and how long they go on. */
const [PAUSE, LONGEST, PATIENCE] = [20, 500, 30_000];
const ELSEWHERE =
  "in another tab, process or thread, or by another Runs of this page; close it there";

/**
 * The runs that an app keeps on this machine.
 *
 * @example
 * ```ts
 * import { Runs } from "tinyloom/storage";
 *
 * const runs = await Runs.open("my-app");
 * const run = await runs.create("first", { data: text });
 * ```
 */
export class Runs {
  /** Where the runs are: "memory" means that they end with the page. */
  readonly where: Where;
  /**
   * Whether the browser has agreed to keep them when its disk runs low. Some browsers ask the user: do not
   * wait for the answer. A folder is kept, memory is not.
   */
  readonly persisted: Promise<boolean>;
  readonly #disk: Disk;
  readonly #open = new Map<string, StoredRun>();

  private constructor(made: typeof MADE, disk: Disk) {
    expectMade(made, "Runs", "await Runs.open(…)");
    this.#disk = disk;
    this.where = disk.where;
    this.persisted =
      disk.where === "origin-private" ? persist() : Promise.resolve(disk.where === "folder");
  }

  /**
   * Opens the runs of an app, and asks the browser to keep them.
   *
   * @param name - the app's: letters, digits, `-`, `_` and `.`.
   * @throws {@link TinyloomError} `invalid-options`.
   */
  static async open(name: string, options: RunsOptions = {}): Promise<Runs> {
    if (typeof name !== "string" || !/^[\w-][\w.-]{0,99}$/.test(name)) {
      throw invalid(
        `Runs.open: ${show(name)} is no name; give 1 to 100 letters, digits, "-", "_" or "."; in Node the option ` +
          "folder says where the runs lie",
      );
    }
    const { folder, memory } = check("Runs.open", options, OPTIONS);
    if (memory && folder !== undefined) {
      throw invalid("Runs.open: memory has no folder; give one of the two options");
    }
    const open = () => (memory ? new Memory() : openDisk(name, folder));
    return new Runs(MADE, await storing("the storage", open));
  }

  /** Bytes that the storage still has room for; undefined where it does not tell. */
  room(): Promise<number | undefined> {
    return storing("the storage", () => this.#disk.room());
  }

  /**
   * Makes a run and opens it.
   *
   * @throws {@link TinyloomError} `invalid-options` where there is one of that name, or where `content.options` has
   * what JSON cannot hold; `storage-full`.
   */
  async create(name: string, content: RunContent = {}): Promise<StoredRun> {
    const { content: files, options = null } = contentOf("runs.create", content);
    return this.#make(name, options, files);
  }

  /**
   * Opens a run. Until it is closed, no other tab can.
   *
   * @throws {@link TinyloomError} `in-use` where another tab, process or thread has it open, `invalid-options` where
   * there is none of that name.
   */
  async open(name: string): Promise<StoredRun> {
    return this.#alone(async () => {
      const { id, record } = await this.#find(name);
      return this.#opened(id, record);
    });
  }

  /** The runs, the newest first. A run whose description is damaged is named by its id. */
  async list(): Promise<RunSummary[]> {
    return storing("the runs", async () => {
      const runs: RunSummary[] = [];
      for (const id of await this.#ids()) {
        const record = await descriptionOf(this.#disk, id);
        const { name = id, created = 0, options = null } = record ?? {};
        runs.push({ id, name, created, options, checkpoints: await checkpointsOf(this.#disk, id) });
      }
      return runs.sort((a, b) => b.created - a.created);
    });
  }

  /**
   * The metrics of a run's steps as {@link StoredRun.metrics} gives them, without opening it. Of a run that is
   * open, perhaps in another tab, those that are written by now.
   *
   * @throws {@link TinyloomError} `invalid-options` where there is none of that name, `invalid-checkpoint`.
   */
  async metrics(name: string): Promise<NotedMetrics[]> {
    const { id } = await this.#find(name);
    const { [METRICS]: log } = logsOf(this.#disk, id);
    return (await storing(`the run ${show(name)}`, () => log.read())) as NotedMetrics[];
  }

  /** Gives a run another name; throws as {@link Runs.open} does. */
  async rename(name: string, to: string): Promise<void> {
    await this.#alone(async () => {
      const { id, record } = await this.#find(name);
      await this.#expectFree("runs.rename", to);
      const open = this.#open.get(id);
      await this.#locked(id, name, () =>
        open ? stored.of(open).rename(to) : describe(this.#disk, id, { ...record, name: to }),
      );
    });
  }

  /** Deletes a run with all that it holds; throws as {@link Runs.open} does. */
  async delete(name: string): Promise<void> {
    await this.#alone(async () => {
      const { id } = await this.#find(name, true);
      if (this.#open.has(id)) throw inUse(name, "here; close it first");
      await this.#locked(id, name, async () => {
        // The descriptions first: what is half deleted is no run.
        for (const one of descriptionsOf(await this.#disk.names([id]))) {
          await this.#disk.remove([id, one.name]);
        }
        await this.#disk.remove([id]);
      });
    });
  }

  /**
   * A run's files: those of its newest checkpoint, which load by themselves, and what it keeps beside it. A
   * trainer's checkpoint comes before a model's. Their checksums are verified. The bytes stay in storage until
   * they are read: the run must not be trained, updated or deleted meanwhile. `metrics.jsonl` and `samples.jsonl`
   * are JSON Lines: one object a line, in which a number that is not finite is null; a damaged line is left out.
   *
   * @throws {@link TinyloomError} `invalid-checkpoint`.
   */
  export(name: string, options: { zip: true }): Promise<Blob>;
  export(name: string, options?: { zip?: false }): Promise<RunFiles>;
  async export(name: string, options: { zip?: boolean } = {}): Promise<RunFiles | Blob> {
    const { zip } = check("runs.export", options, { zip: flag });
    const { id, record } = await this.#find(name);
    return storing(`the run ${show(name)}`, async () => {
      const files: { [name: string]: Blob } = {};
      const { options: kept, created } = record;
      files["run.json"] = new Blob([JSON.stringify({ name, created, options: kept })]);
      for (const [kind, file] of Object.entries(record.files)) {
        const path = [id, file.file];
        await verify(kind, await this.#disk.find(path), file);
        files[kind] = await this.#disk.blob(path);
      }
      const whole = await checkpointsOf(this.#disk, id);
      const newest = whole.find(({ step }) => step !== null) ?? whole[0];
      const paths = newest ? await verifyCheckpoint(this.#disk, id, newest.number) : {};
      for (const [one, path] of Object.entries(paths)) files[one] = await this.#disk.blob(path);
      for (const [log, lines] of Object.entries(logsOf(this.#disk, id))) {
        const text = await lines.plain();
        if (text !== "") files[log] = new Blob([text]);
      }
      return zip ? writeZip(files) : files;
    });
  }

  /**
   * Makes a run of what {@link Runs.export} gave, and opens it.
   *
   * @param from - the zip, or the files by name: Blobs or bytes. Other names than those are refused.
   * @param name - default: the name that it had.
   * @throws {@link TinyloomError} `invalid-options`, `invalid-checkpoint`, and as {@link Runs.create}.
   */
  async import(
    from: Blob | { readonly [name: string]: Blob | Uint8Array<ArrayBuffer> | ArrayBuffer },
    name?: string,
  ): Promise<StoredRun> {
    return storing("what runs.import was given", async () => {
      const files = blobsOf(isA(from, Blob) ? await readZip(from as Blob) : from);
      const { name: own, options = null } = await describedBy(files["run.json"]);
      const { data, tokenizer } = files;
      const beside = { ...(data && { data }), ...(tokenizer && { tokenizer }) };
      const run = await this.#make(name ?? own, options, beside);
      try {
        const logs = logsOf(this.#disk, run.id);
        for (const log of LOGS) await logs[log].take(await files[log]?.text());
        await writeCheckpoint(run, files);
        return run;
      } catch (error) {
        await run.close();
        await this.delete(run.name);
        throw error;
      }
    });
  }

  async #make(name: string, options: unknown, content: Contents): Promise<StoredRun> {
    await this.#expectFree("runs.create", name);
    const id = `${Date.now().toString(36)}-${Math.random().toString(36).slice(2, 10)}`;
    const record = { format: 1, name, created: Date.now(), options } as const;
    return storing(`the run ${show(name)}`, async () => {
      let run: StoredRun | undefined;
      try {
        const files: { [kind: string]: StoredFile } = {};
        for (const [kind, blob] of Object.entries(content)) {
          files[kind] = { file: kind, ...(await copy(this.#disk, blob, [id, kind])) };
        }
        return await this.#alone(async () => {
          await this.#expectFree("runs.create", name); // another may have come while the files were copied
          run = await this.#opened(id, { ...record, files });
          await describe(this.#disk, id, { ...record, files });
          return run;
        });
      } catch (error) {
        await run?.close().catch(() => undefined);
        await this.#disk.remove([id]).catch(() => undefined);
        throw error;
      }
    });
  }

  async #opened(id: string, record: RunRecord): Promise<StoredRun> {
    if (this.#open.has(id)) throw inUse(record.name, "here; close it first");
    const release = await storing("the lock", () => this.#disk.lock(id));
    if (!release) throw inUse(record.name, ELSEWHERE);
    const run = makeRun(this.#disk, id, record, async () => {
      this.#open.delete(id);
      await release();
    });
    this.#open.set(id, run);
    return run;
  }

  /** Does something while nobody else, in this page or another, makes, opens, renames or deletes a run. */
  async #alone<T>(work: () => Promise<T>): Promise<T> {
    const began = performance.now();
    // Ever longer: a look connects to who has the lock, and a system keeps only some connections for a busy thread.
    for (let pause = PAUSE; ; pause = Math.min(2 * pause, LONGEST)) {
      const release = await storing("the lock", () => this.#disk.lock(NAMES));
      if (release) {
        try {
          return await work();
        } finally {
          await release();
        }
      }
      if (performance.now() - began > PATIENCE) {
        const message = "another tab, process or thread has been changing the runs for 30 seconds";
        throw new TinyloomError("in-use", `${message}; close it, or call again`);
      }
      await new Promise((next) => setTimeout(next, pause));
    }
  }

  /** Does something with a run that nobody else has open. */
  async #locked(id: string, name: string, work: () => Promise<void>): Promise<void> {
    const own = this.#open.has(id);
    const release = own ? undefined : await storing("the lock", () => this.#disk.lock(id));
    if (!own && !release) throw inUse(name, ELSEWHERE);
    try {
      await storing(`the run ${show(name)}`, work);
    } finally {
      await release?.();
    }
  }

  /** Ids of the runs: of those whose folder has a description, be it damaged. */
  async #ids(): Promise<string[]> {
    const ids: string[] = [];
    for (const id of await this.#disk.names([])) {
      if (id.endsWith(".lock")) continue;
      if (descriptionsOf(await this.#disk.names([id])).length > 0) ids.push(id);
    }
    return ids;
  }

  async #find(name: string, damaged = false): Promise<{ id: string; record: RunRecord }> {
    return storing("the runs", async () => {
      for (const id of await this.#ids()) {
        const record = await descriptionOf(this.#disk, id);
        if (record?.name === name) return { id, record };
        if (record || id !== name) continue;
        if (damaged) return { id, record: {} as RunRecord };
        const message = `the description of the run ${id} is damaged; delete it`;
        throw new TinyloomError("invalid-checkpoint", message);
      }
      throw invalid(`there is no run named ${show(name)}; runs.list() gives those that there are`);
    });
  }

  async #expectFree(where: string, name: string): Promise<void> {
    if (typeof name !== "string" || name === "" || name.length > 200) {
      throw invalid(`${where}: ${show(name)} is no name; give 1 to 200 characters`);
    }
    if ((await this.list()).some((one) => one.name === name)) {
      throw invalid(
        `${where}: there is a run named ${show(name)}; give another name, or delete it`,
      );
    }
  }
}

async function openDisk(name: string, folder: string | URL | undefined): Promise<Disk> {
  if (folder !== undefined || inNode()) {
    if (!inNode()) throw invalid("Runs.open: a folder is for Node, Deno and Bun; leave it out");
    return openFolder(name, folder);
  }
  const { storage, locks } = (globalThis.navigator ?? {}) as Partial<Navigator>;
  if (typeof storage?.getDirectory !== "function" || !locks) return new Memory();
  const origin = await storage.getDirectory();
  const tinyloom = await origin.getDirectoryHandle("tinyloom", { create: true });
  return new OriginPrivate(await tinyloom.getDirectoryHandle(name, { create: true }), name);
}

function inUse(name: string, where: string): TinyloomError {
  return new TinyloomError("in-use", `the run ${show(name)} is open ${where}`);
}
