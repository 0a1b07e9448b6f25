import type { RunFiles, RunSummary } from "tinyloom/storage";
import {
  type Connected,
  type Runs,
  type StepMetrics,
  type StoredRun,
  TinyloomError,
} from "tinyloom/worker";
import type { Score } from "./exam.ts";
import type { WrittenToken } from "./sample.ts";
import type { RunSettings } from "./settings.ts";

/** The folder of this page in the origin's private file system. */
const APP = "tinyloom-demo";

/** How the newest exam went, and after which step. */
export type KeptScore = Score & { readonly step: number };

/** What the page keeps of a run besides the data, the tokenizer, and what tinyloom keeps itself. */
export interface Kept {
  readonly settings: RunSettings;
  readonly text: {
    readonly name: string;
    /** Whether it is the built-in stories. */
    readonly stories: boolean;
    /** The task whose problems it has, if it has some. */
    readonly task?: string | undefined;
    /** Of the dataset: tells other data from the same. */
    readonly hash: string;
  };
  /** Whether it began with another model's weights instead of new ones. */
  readonly pretrained: boolean;
  /** The newest score before the newest checkpoint; runs of older versions of the page have none. */
  readonly score?: KeptScore;
}

/** What was kept with a run; undefined for one that this page has not made, or whose description is damaged. */
export function keptOf({ options }: { readonly options: unknown }): Kept | undefined {
  const { settings, text } = (options ?? {}) as Partial<Kept>;
  return settings?.config && text ? (options as Kept) : undefined;
}

/** What a run is made with. */
export interface Content {
  data: Blob;
  /** A tokenizer.json; without one, bytes are the tokens. */
  tokenizer?: string;
  options: Kept;
}

/** The losses of a run by step. */
export interface Curve {
  readonly name: string;
  readonly steps: readonly number[];
  readonly losses: readonly number[];
}

/** A sample as a run keeps it. */
export type KeptSample = {
  readonly step: number;
  /** What the model wrote; absent where only a score was taken. */
  readonly text?: string;
  /** The tokens of that text. */
  readonly tokens?: readonly WrittenToken[];
  readonly score?: Score;
};

/** What opens runs. */
type Lab = Pick<Connected, "Runs">;

/** The runs of this page: in the browser's storage, and in memory where that is missing or full. */
export class RunStore {
  readonly #lab: Lab;
  readonly #runs: Runs;
  /** Runs that did not fit into the storage, or are not to outlive the page. */
  #memory: Runs | undefined;
  #full = false;

  private constructor(lab: Lab, runs: Runs) {
    this.#lab = lab;
    this.#runs = runs;
  }

  /** Where the browser refuses its storage, as in some private windows, runs are in memory. */
  static async open(lab: Lab): Promise<RunStore> {
    const runs = await lab.Runs.open(APP).catch(() => lab.Runs.open(APP, { memory: true }));
    return new RunStore(lab, runs);
  }

  /** Whether runs outlive the page, as long as there is room. */
  get lasting(): boolean {
    return this.#runs.where !== "memory";
  }

  /** Whether a run did not fit into the storage. */
  get full(): boolean {
    return this.#full;
  }

  /** Whether this run outlives the page. */
  async outlives(run: StoredRun): Promise<boolean> {
    return this.lasting && (await this.#runs.list()).some(({ id }) => id === run.id);
  }

  /** The runs, the newest first. */
  async list(): Promise<RunSummary[]> {
    const inMemory = (await this.#memory?.list()) ?? [];
    return [...inMemory, ...(await this.#runs.list())];
  }

  /** A name that no run has: the name itself, or with a number after it. */
  async freeName(name: string): Promise<string> {
    const taken = new Set((await this.list()).map((run) => run.name));
    let free = name;
    for (let number = 2; taken.has(free); number++) free = `${name} ${number}`;
    return free;
  }

  /** Makes a run: in memory where the storage is full, or where it is not to outlive the page. */
  async create(name: string, content: Content, lasting = true): Promise<StoredRun> {
    const free = await this.freeName(name);
    if (!lasting) return (await this.#inMemory()).create(free, content);
    try {
      return await this.#runs.create(free, content);
    } catch (error) {
      if (!isFull(error)) throw error;
      this.#full = true;
      return (await this.#inMemory()).create(free, content);
    }
  }

  async open(name: string): Promise<StoredRun> {
    return (await this.#with(name)).open(name);
  }

  /** Goes on with a run in memory, since the storage is full. What was stored stays as it is. */
  async moveToMemory(run: StoredRun): Promise<StoredRun> {
    this.#full = true;
    const tokenizer = await tokenizerOf(run);
    const content = {
      data: await run.data(),
      options: run.options as Kept,
      ...(tokenizer !== undefined && { tokenizer }),
    };
    const name = await this.freeName(`${run.name}, in memory`);
    const moved = await (await this.#inMemory()).create(name, content);
    for (const metrics of await run.metrics()) await moved.addMetrics(metrics);
    for (const sample of await run.samples()) await moved.addSample(sample);
    await run.close().catch((error: unknown) => {
      if (!isFull(error)) throw error; // the curve's end did not fit either
    });
    return moved;
  }

  async metrics(name: string): Promise<StepMetrics[]> {
    return (await (await this.#with(name)).metrics(name)) as StepMetrics[];
  }

  /** The losses of a run by step, without those that were not finite. */
  async curve(name: string): Promise<Curve> {
    const metrics = (await this.metrics(name)).filter(({ loss }) => loss !== null);
    const losses = metrics.map(({ loss }) => loss);
    return { name, steps: metrics.map(({ step }) => step), losses };
  }

  async rename(name: string, to: string): Promise<void> {
    await (await this.#with(name)).rename(name, to);
  }

  async delete(name: string): Promise<void> {
    await (await this.#with(name)).delete(name);
  }

  /** The run as a zip. Its folder loads in transformers as it is. */
  async export(name: string): Promise<Blob> {
    const runs = await this.#with(name);
    if (runs !== this.#runs || !this.lasting) return runs.export(name, { zip: true });
    return (await ownRuns()).export(name, { zip: true });
  }

  /** Takes what `export` gave. */
  async import(files: Blob | RunFiles, name: string): Promise<string> {
    const free = await this.freeName(name);
    const runs = this.lasting ? await ownRuns() : this.#runs;
    const run = await runs.import(files, free);
    await run.close();
    return free;
  }

  async #inMemory(): Promise<Runs> {
    this.#memory ??= await this.#lab.Runs.open(APP, { memory: true });
    return this.#memory;
  }

  async #with(name: string): Promise<Runs> {
    const inMemory = (await this.#memory?.list())?.some((run) => run.name === name);
    return this.#memory && inMemory ? this.#memory : this.#runs;
  }
}

/** The same runs, read and written by the page: Firefox sometimes does not end such a call in a worker. */
async function ownRuns() {
  const { Runs } = await import("tinyloom/storage");
  return Runs.open(APP);
}

const has = (error: unknown, code: string): boolean =>
  error instanceof TinyloomError && error.code === code;

export const isFull = (error: unknown): boolean => has(error, "storage-full");
export const isInUse = (error: unknown): boolean => has(error, "in-use");

/** The run's tokenizer.json, if it has one. */
export async function tokenizerOf(run: StoredRun): Promise<string | undefined> {
  return orNothing(() => run.tokenizer());
}

/** The run's text, if it was kept with it. */
export async function dataOf(run: StoredRun): Promise<Blob | undefined> {
  return orNothing(() => run.data());
}

async function orNothing<T>(read: () => Promise<T>): Promise<T | undefined> {
  try {
    return await read();
  } catch (error) {
    if (has(error, "invalid-options")) return undefined;
    throw error;
  }
}
