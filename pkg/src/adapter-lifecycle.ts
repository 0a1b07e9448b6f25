/** Makes, loads and merges adapters. */

import type { Adapter, MakeAdapter } from "./adapter.js";
import type {
  AdapterOptions,
  LoadAdapterOptions,
  ResolvedAdapterOptions,
} from "./adapter-types.js";
import { type LoadedRun, type Loading, loadRun, loadWeights } from "./checkpoint-loader.js";
import { TinyloomError } from "./error.js";
import { openSource } from "./file-source.js";
import {
  type InnerAdapter,
  type InnerModel,
  models,
  type OwnedByModel,
  trainers,
} from "./internal.js";
import type { Model } from "./model.js";
import { NO_NOTES } from "./notes.js";
import {
  check,
  flag,
  fraction,
  integer,
  invalid,
  number,
  type Rules,
  seed,
  show,
} from "./options.js";
import { LOAD, LONG, type LongOptions } from "./progress.js";
import { dispose, endWith, RawHandle } from "./raw-handle.js";
import type { RawModel, RawRuntime, Seen } from "./raw-types.js";
import type { Origin } from "./recovery/origin.js";
import { ADAPTER_FILES } from "./save-types.js";
import { watched } from "./watch.js";

const ADAPTER: Rules<AdapterOptions> = {
  rank: integer(1, 65_536),
  alpha: number(0, Number.POSITIVE_INFINITY, true),
  rsLora: flag,
  dropout: fraction(),
  targets: (value) =>
    value === "all-linear" ||
    (Array.isArray(value) && value.length > 0 && value.every((one) => typeof one === "string"))
      ? undefined
      : '"all-linear", or an array of names of modules such as ["q_proj", "v_proj"]',
  seed,
};

const LOADED: Rules<LoadAdapterOptions> = { ...LOAD, dropout: fraction() };

/** The options as the module takes them. */
export function adapterOptions(where: string, options: unknown): object {
  return resolved(check<AdapterOptions>(where, options, ADAPTER));
}

function resolved({ targets, ...rest }: AdapterOptions): object {
  return { ...rest, ...(targets && { targets: [targets].flat() }) };
}

/** {@link Adapter.create}. */
export async function createAdapter(
  make: MakeAdapter,
  model: Model,
  options: AdapterOptions & LongOptions,
): Promise<Adapter> {
  const where = "Adapter.create";
  const base = baseOf(where, model);
  const { signal, onProgress, ...chosen } = check<AdapterOptions & LongOptions>(where, options, {
    ...ADAPTER,
    ...LONG,
  });
  const json = JSON.stringify(resolved(chosen));
  const create = async (raw: RawModel, long: LongOptions) => ({
    model: await watched(where, long, (ask) => raw.adapt(json, ask)),
  });
  const long = { ...(signal && { signal }), ...(onProgress && { onProgress }) };
  const { adapter } = await over(make, model, base, long, create, true);
  return adapter;
}

/** {@link Adapter.load}. */
export async function loadAdapter(
  make: MakeAdapter,
  model: Model,
  source: unknown,
  options: LoadAdapterOptions,
): Promise<Adapter> {
  const where = "Adapter.load";
  const base = baseOf(where, model);
  const { dropout, ...chosen } = check(where, options, LOADED);
  const files = openSource(where, source, chosen);
  const load = async (raw: RawModel, long: LongOptions, seen: Seen) => ({
    model: await loadWeights(loadingOver(base, raw, files, dropout), long, seen),
  });
  const { adapter } = await over(make, model, base, chosen, load);
  return adapter;
}

/** {@link Trainer.resume} of a run that trained an adapter. */
export async function resumeAdapter(
  make: MakeAdapter,
  model: Model,
  source: unknown,
  options: LongOptions,
): Promise<{ adapter: Adapter; made: LoadedRun }> {
  const base = baseOf("Trainer.resume", model);
  const files = openSource("Trainer.resume", source, options);
  const load = (raw: RawModel, long: LongOptions, seen: Seen) =>
    loadRun(loadingOver(base, raw, files), long, seen);
  return over(make, model, base, options, load);
}

/** {@link Adapter.merge}. */
export async function mergeAdapter(inner: InnerAdapter, options: LongOptions): Promise<void> {
  const chosen = check("merge", options, LONG);
  const { recovery } = inner.base;
  await inner.handle.run(async (raw) => {
    const merged = await recovery?.merging(raw);
    await watched("merge", chosen, (ask) => raw.merge(ask), false);
    merged?.();
    inner.end("the Adapter was merged into its model; create or load another");
  }, chosen.signal);
}

function loadingOver(
  { runtime: { module } }: InnerModel,
  raw: RawModel,
  source: Loading["source"],
  dropout?: number,
): Loading {
  const loader = (config: string) => raw.adaptAs(config, dropout);
  return { module, source, names: ADAPTER_FILES, loader };
}

/**
 * A new adapter that gives what several give together, each times its scale: their A lie one below the other, and their
 * B, scaled, side by side. It has the numbers that they have in its turn.
 */
export async function sumOfAdapters(base: InnerModel, given: unknown): Promise<InnerAdapter> {
  const parts = partsOf(base, given);
  const own = parts.map(({ inner }) =>
    inner.handle.callSync((raw) => JSON.parse(raw.adapterOptions())),
  );
  const rank = own.reduce((sum: number, options) => sum + options.rank, 0);
  const targets = [...new Set(own.flatMap((options) => options.targets as string[]))];
  const json = JSON.stringify({ rank, alpha: rank, targets });
  const create = async (raw: RawModel) => ({ model: await raw.adapt(json, () => false) });
  const inner = (_: undefined, made: InnerAdapter) => made;
  const { adapter: sum } = await over(inner, undefined, base, {}, create, true);
  try {
    await sum.handle.run((raw) => fill(sum, raw, parts, own));
  } catch (error) {
    sum.end();
    throw error;
  }
  return sum;
}

/** An adapter of a sum, and what it is multiplied by. */
interface AdapterPart {
  readonly inner: InnerAdapter;
  readonly scale: number;
}

function partsOf(base: InnerModel, given: unknown): AdapterPart[] {
  const list = given as readonly { readonly adapter: unknown; readonly scale?: unknown }[];
  if (list.length === 0 || list.length > 64) {
    throw invalid(`adapters has ${list.length} adapters; give 1 to 64 as { adapter, scale }`);
  }
  return Array.from(list, (one, at) => {
    const inner = models.find(one?.adapter) as InnerAdapter | undefined;
    const scale = one?.scale ?? 1;
    if (!inner?.base || !Number.isFinite(scale)) {
      throw invalid(`adapters[${at}] is ${show(one)}; give { adapter, scale } with a finite scale`);
    }
    if (inner.base !== base) {
      throw invalid(`adapters[${at}] is of another model; give one that was created on this model`);
    }
    return { inner, scale: scale as number };
  });
}

/** An adapter's options, as the module tells them. */
interface Scaled {
  readonly rank: number;
  readonly alpha: number;
  readonly rsLora: boolean;
}

/** In the model's turn: writes the numbers of a sum. */
async function fill(
  { recovery }: InnerAdapter,
  raw: RawModel,
  parts: readonly AdapterPart[],
  options: readonly Scaled[],
): Promise<void> {
  for (const { inner } of parts) await inner.recovery?.current();
  const shapes = parts.map(({ inner }) => shapesOf(inner.handle.raw));
  for (const [name, shape] of Object.entries(shapesOf(raw))) {
    const isA = name.includes(".lora_A.");
    const [rows, columns] = shape as [number, number];
    const values = new Float32Array(rows * columns);
    let before = 0;
    for (const [index, { inner, scale }] of parts.entries()) {
      const { rank, alpha, rsLora } = options[index] as Scaled;
      // What an adapter does not adapt stays zero.
      if (shapes[index]?.[name]) {
        const own = await inner.handle.raw.readNamed(name);
        if (isA) values.set(own, before * columns);
        else {
          const by = (scale * alpha) / (rsLora ? Math.sqrt(rank) : rank);
          own.forEach((x, i) => {
            values[Math.floor(i / rank) * columns + before + (i % rank)] = by * x;
          });
        }
      }
      before += rank;
    }
    const set = await recovery?.setting(name, values);
    await raw.writeNamed(name, values);
    set?.();
  }
}

const shapesOf = (raw: RawModel): { readonly [name: string]: readonly number[] } =>
  Object.fromEntries(JSON.parse(raw.tensors()));

/** The inner side of a model that is to lie under an adapter. */
function baseOf(where: string, model: unknown): InnerModel {
  const inner = models.find(model);
  if (inner && !inner.base) return inner;
  throw invalid(`${where} takes a Model first, not ${show(model)}`);
}

/**
 * Makes an adapter in the base's turn.
 *
 * @param build - gives its raw objects over a base's.
 * @param seeded - whether it is a function of numbers alone.
 */
async function over<T extends { readonly model: RawModel }, A, M>(
  make: (model: M, inner: InnerAdapter, options: ResolvedAdapterOptions) => A,
  model: M,
  base: InnerModel,
  long: LongOptions,
  build: (raw: RawModel, long: LongOptions, seen: Seen) => Promise<T>,
  seeded?: true,
): Promise<{ adapter: A; made: T }> {
  return base.handle.run(async (raw) => {
    const on = base.runtime.callSync((own) => own);
    const seen: Seen = { sum: 0 };
    const made = await build(raw, long, seen);
    if (base.handle.freed) dispose(made.model);
    void base.handle.raw; // code "freed"
    const again = async (_: RawRuntime, then: Seen) => {
      await base.recovery?.current();
      return build(base.handle.raw, {}, then);
    };
    const { targets, ...options } = JSON.parse(made.model.adapterOptions());
    const { _name_or_path: path } = JSON.parse(raw.config());
    const notes = {
      ...NO_NOTES,
      base: seen.notes?.base ?? (typeof path === "string" ? path : undefined),
    };
    const inner = innerOf(base, made.model, on, {
      ...(seeded ? { again, seeded } : { again, seen }),
      notes,
    });
    const fixed: ResolvedAdapterOptions = { ...options, targets: Object.freeze(targets) };
    return { adapter: make(model, inner, Object.freeze(fixed)), made };
  }, long.signal);
}

function innerOf(base: InnerModel, raw: RawModel, on: RawRuntime, began: Origin): InnerAdapter {
  const { runtime, queue } = base;
  const handle = new RawHandle("Adapter", raw, queue, runtime.module);
  const loader = async (config: string) => {
    await base.recovery?.current();
    return base.handle.raw.adaptAs(config);
  };
  const adapted = { names: ADAPTER_FILES, under: base.recovery, loader };
  const origin = { ...began, adapted };
  const recovery = runtime.recovery?.model({ handle, queue, on, origin });
  const owned = new Set<{ free(): void }>();
  const finish = (why?: string) => {
    const gone = why && new TinyloomError("freed", why);
    if (gone) handle.lose(gone);
    const trained = [...owned];
    endWith("freed with its Adapter", trained);
    for (const one of trained) if (gone) trainers.find(one)?.handle.lose(gone);
    handle.free();
    recovery?.end();
    base.disown(adapter);
  };
  const adapter: OwnedByModel = {
    lora: true,
    free: () => finish(),
  };
  base.own(adapter);
  return {
    runtime,
    queue,
    base,
    names: ADAPTER_FILES,
    handle,
    notes: began.notes ?? NO_NOTES,
    recovery,
    own: (trainer) => owned.add(trainer),
    disown: (trainer) => owned.delete(trainer),
    end: finish,
  };
}
