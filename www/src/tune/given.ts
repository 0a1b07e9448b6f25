/** Models that a visitor brings: a checkpoint folder, a GGUF file, or an address of either. */
import type { CheckpointSource, LoadOptions, ModelConfig, TinyloomError } from "tinyloom/worker";
import { type Codec, codecOf, wordsOf } from "../data.ts";
import type { Folder } from "../import.ts";
import type { Lab } from "../lab.ts";
import { shapeOf } from "../shape.ts";
import { type Address, addressFailure, answers } from "./address.ts";
import { type BaseModel, refused, templateFor } from "./base-model.ts";

/** A model that was brought. */
export interface Given {
  /** Its option in the list. */
  readonly label: string;
  /** Reads what it is, without its weights. `told` hears what is being read. */
  open(lab: Lab, signal: AbortSignal, told: (what: string) => void): Promise<BaseModel>;
}

/** Files of a picker or a drop. */
export function givenFolder(folder: Folder): Given {
  const { name, files } = folder;
  const gguf = ggufOf(folder);
  return {
    label: `${name}, a ${gguf ? "GGUF file" : "folder"}`,
    open: (lab, signal, told) => {
      if (gguf) return baseAt(lab, name, { [gguf.name]: gguf }, { signal }, told);
      return baseOfFiles(lab, name, files);
    },
  };
}

/**
 * An address.
 *
 * @param keep - whether the browser keeps the files.
 */
export function givenAddress({ source, name, host }: Address, keep: () => boolean): Given {
  const inWords = (error: unknown): Promise<TinyloomError> =>
    addressFailure(error, host, { online: navigator.onLine, answers });
  /** Does what asks the address, and says in words why it failed. */
  const asking = async <T>(signal: AbortSignal, work: () => Promise<T>): Promise<T> => {
    try {
      return await work();
    } catch (error) {
      signal.throwIfAborted();
      throw await inWords(error);
    }
  };
  return {
    label: `${name}, from ${host}`,
    open: async (lab, signal, told) => {
      const base = await asking(signal, () => baseAt(lab, name, source, { signal }, told, keep));
      return {
        ...base,
        load: (weights, end, hears) => asking(end, () => base.load(weights, end, hears)),
      };
    },
  };
}

/** The GGUF file of a folder that is no checkpoint folder. */
function ggufOf({ files }: Folder): File | undefined {
  const found = Object.values(files).filter(({ name }) => /\.gguf$/i.test(name));
  if (files["config.json"] || found.length === 0) return undefined;
  if (found.length > 1) {
    throw refused(
      `There are ${found.length} .gguf files. Choose the one that is to be used; the parts of one have to be joined first.`,
    );
  }
  return found[0];
}

/** The model of a checkpoint folder. */
async function baseOfFiles(lab: Lab, name: string, files: Folder["files"]): Promise<BaseModel> {
  const described = files["config.json"];
  if (!described) {
    throw refused(
      "The folder has no config.json. Open a folder as Hugging Face has it: config.json, one or more " +
        ".safetensors files, and tokenizer.json. Or choose a .gguf file.",
    );
  }
  if (!Object.keys(files).some((file) => file.endsWith(".safetensors"))) {
    throw refused(
      "The folder has no .safetensors file. Weights in .bin or .onnx files are not read here.",
    );
  }
  let config: ModelConfig;
  try {
    config = JSON.parse(await described.text()) as ModelConfig;
  } catch {
    throw refused("The config.json of this folder is no JSON.");
  }
  const own = await files["tokenizer.json"]?.text();
  const { vocab_size: words = 0 } = config;
  if (own === undefined && words !== 256) {
    throw refused(
      `The folder has no tokenizer.json, and its model has ${words} tokens instead of the 256 of bytes.`,
    );
  }
  return baseWith(lab, { name, config, source: files, words: await codecOf(lab, own, files) });
}

/** The model of a source that the package reads by itself. Of its files only those that say what it is are asked for. */
async function baseAt(
  lab: Lab,
  name: string,
  source: CheckpointSource,
  { signal }: LoadOptions,
  told: (what: string) => void,
  cache?: () => boolean,
): Promise<BaseModel> {
  // Of a GGUF file only the beginning is fetched here: to keep it, all of it would have to be.
  const whole = typeof source === "string" && /\.gguf$/i.test(source.replace(/[?#].*$/, ""));
  const long: LoadOptions = { ...(signal && { signal }), cache: !whole && (cache?.() ?? false) };
  told("Reading what the model is…");
  const config = await lab.readConfig(source, long);
  told("Reading its tokenizer…");
  const words = await wordsAt(lab, source, config, long);
  return baseWith(lab, { name, config, source, words, ...(cache && { cache }) });
}

/** How a source's text becomes tokens. A model of bytes needs no file for that. */
async function wordsAt(
  lab: Lab,
  source: CheckpointSource,
  { vocab_size: count }: ModelConfig,
  long: LoadOptions,
): Promise<Codec> {
  try {
    return await wordsOf(lab, source, long);
  } catch (error) {
    if (count !== 256 || long.signal?.aborted) throw error;
    return codecOf(lab);
  }
}

function baseWith(
  lab: Lab,
  given: {
    readonly name: string;
    readonly config: ModelConfig;
    readonly source: CheckpointSource;
    readonly words: Codec;
    cache?(): boolean;
  },
): BaseModel {
  const { name, config, source, words } = given;
  return {
    name,
    config,
    codec: words,
    task: undefined,
    ...templateFor(words, undefined),
    context: shapeOf(config).positions ?? 1024,
    load: (weights, signal, onProgress) => {
      const cache = given.cache?.() ?? false;
      return lab.Model.fromPretrained(lab.runtime, source, { weights, signal, onProgress, cache });
    },
  };
}
