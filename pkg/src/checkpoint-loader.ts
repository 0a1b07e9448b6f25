/** Loads models, adapters and training runs from their files. */

import { optionalText, readText, required, STATE_BYTES, weightFiles } from "./checkpoint-files.js";
import type { DrawnData } from "./dataset-types.js";
import { isTinyloomError, throwIfAborted } from "./error.js";
import type { FilePart } from "./file-part.js";
import { CONFIG_BYTES, type Source } from "./file-part.js";
import { jsonIn } from "./json-file.js";
import type { ModelConfig } from "./model-config.js";
import { type Dtype, GENERATION_FILE, notesOf } from "./notes.js";
import { invalid, object, show } from "./options.js";
import { baseNameIn, plainAdapter } from "./peft-files.js";
import { type LongOptions, report, reported } from "./progress.js";
import { dispose } from "./raw-handle.js";
import type { RawLoader, RawModel, RawModule, RawResume, RawTrainer, Seen } from "./raw-types.js";
import { type OpenFile, pullTensors, readHeaders, withRoom } from "./safetensors.js";
import { ADAPTER_FILES, MODEL_FILES } from "./save-types.js";
import { readState } from "./trainer-state.js";
import { watched } from "./watch.js";

/** Where files come from, and what takes them. */
export interface Loading {
  readonly module: RawModule;
  readonly source: Source;
  /** Names of config and weights. */
  readonly names: readonly string[];
  /** Whether the model holds its matrices in codes. */
  readonly coded?: boolean;
  /** Makes what takes the tensors, from the config's text. */
  loader(config: string): RawLoader | Promise<RawLoader>;
}

/** A run as it was saved. */
export interface LoadedRun extends DrawnData {
  readonly model: RawModel;
  readonly trainer: RawTrainer;
  readonly progress: { readonly step: number; readonly cursor: number };
  readonly fixedTotal: boolean;
}

/** Loads weights and config. Headers are judged before memory is asked for, and memory before a tensor is read. */
export async function loadWeights(
  { module, source: given, names, coded, ...by }: Loading,
  long: LongOptions,
  seen: Seen,
): Promise<RawModel> {
  const source = names === ADAPTER_FILES ? await plainAdapter(given) : given;
  const config = await readConfig(source, names);
  const loader = await by.loader(config);
  try {
    throwIfAborted(long.signal, "loading");
    const generation = names === ADAPTER_FILES ? undefined : await readGeneration(source);
    const files = await filesOf(source, names);
    const open = await readHeaders(files, withRoom(module, loader, seen));
    seen.notes = { ...notesOf(config, generation, dtypeOf(open)), base: baseNameIn(config) };
    throwIfAborted(long.signal, "loading");
    await loader.allocate();
    await pullTensors(open, loading(long), coded);
    await reported(long);
    return await loader.finish();
  } finally {
    dispose(loader);
  }
}

/** Loads weights and config with a trainer's moments and state. */
export async function loadRun(
  { module, source, names, ...by }: Loading,
  long: LongOptions,
  seen: Seen,
): Promise<LoadedRun> {
  const state = await readText(source, "trainer_state.json", STATE_BYTES);
  const config = await readConfig(source, names);
  const loader = await by.loader(config);
  let resume: RawResume | undefined;
  try {
    const generation = names === ADAPTER_FILES ? undefined : await readGeneration(source);
    const loaded = new module.RawResume(loader, state);
    resume = loaded;
    const { progress, totalStepsGiven, dataHash, dataOptions } = readState(
      state,
      config,
      names[0] as string,
    );
    const weights = await readHeaders(await filesOf(source, names), withRoom(module, loader, seen));
    seen.notes = { ...notesOf(config, generation, dtypeOf(weights)), base: baseNameIn(config) };
    const open = [
      ...weights,
      ...(await readHeaders(
        [await required(source, "optimizer.safetensors")],
        withRoom(module, loaded, seen),
      )),
    ];
    throwIfAborted(long.signal, "resume");
    await loader.allocate();
    // Progress is that of the bytes.
    const silent = long.signal ? { signal: long.signal } : {};
    await watched("resume", silent, (ask) => loaded.allocate(loader, ask));
    await pullTensors(open, loading(long));
    await reported(long);
    const model = await loader.finish();
    const trainer = await loaded.finish().catch((error: unknown) => {
      model.release();
      throw error;
    });
    const fixedTotal = totalStepsGiven === true;
    return { model, trainer, progress, fixedTotal, dataHash, dataOptions };
  } finally {
    if (resume) dispose(resume);
    dispose(loader);
  }
}

/** A checkpoint's config as it is written: without defaults, and not judged. */
export async function configIn(source: Source): Promise<ModelConfig> {
  return JSON.parse(await readConfig(source, MODEL_FILES));
}

/** The text of a config, which is an object of JSON. */
async function readConfig(source: Source, names: readonly string[]): Promise<string> {
  const text = await readConfigText(source, names);
  const place = source.place(names[0] as string);
  const config = jsonIn(place, text, "invalid-config");
  if (object(config) === undefined) return text;
  throw invalid(`${place} is ${show(config)}, and no object of fields`, "invalid-config");
}

async function readConfigText(source: Source, names: readonly string[]): Promise<string> {
  try {
    return await readText(source, names[0] as string, CONFIG_BYTES, "invalid-config");
  } catch (error) {
    if (names === ADAPTER_FILES) throw error;
    // Of a server that does not answer, the first failure tells what was looked for.
    const other = await source.find(ADAPTER_FILES[0] as string).catch(() => undefined);
    other?.rest?.();
    if (!other) throw error;
    throw invalid(
      `${other.place} is an adapter's: load the model under it, and give that to Adapter.load, or to ` +
        "Trainer.resume for the adapter's run",
    );
  }
}

/** What all tensors of the files are stored in; f32 where they differ. */
function dtypeOf(files: readonly OpenFile[]): Dtype {
  const [first, ...others] = new Set(files.flatMap(({ dtypes }) => [...dtypes]));
  const dtype = first?.toLowerCase();
  return others.length === 0 && (dtype === "f16" || dtype === "bf16") ? dtype : "f32";
}

/** The text of `generation_config.json`; undefined where there is none. */
async function readGeneration(source: Source): Promise<string | undefined> {
  const code = "invalid-config";
  const text = await optionalText(source, GENERATION_FILE, CONFIG_BYTES, code).catch((error) => {
    // Some stores refuse to say that a file is not there.
    if (isTinyloomError(error) && / answered 40[13] /.test(error.message)) return undefined;
    throw error;
  });
  // Some servers answer with a page for whatever is not there.
  if (text === undefined || /^\s*</.test(text)) return undefined;
  jsonIn(source.place(GENERATION_FILE), text, code);
  return text;
}

async function filesOf(source: Source, names: readonly string[]): Promise<FilePart[]> {
  return names === ADAPTER_FILES
    ? [await required(source, names[1] as string)]
    : weightFiles(source);
}

/** Progress of tensors on their way to the GPU; the signal ends it. */
function loading(options: LongOptions) {
  return ({ name, remote }: FilePart, loaded: number, total: number): void => {
    throwIfAborted(options.signal, "loading");
    const upload = name === "optimizer.safetensors" ? "upload optimizer state" : "upload";
    report(options, { loaded, total, stage: remote ? `download ${name}` : upload });
  };
}
