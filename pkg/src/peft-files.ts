/**
 * An adapter's files as PEFT writes them, made plain: what chooses modules by patterns becomes a list of modules, and
 * modules of several ranks and scales get one of each. The product that each adds stays the same.
 */

import { readText, required } from "./checkpoint-files.js";
import { TinyloomError } from "./error.js";
import { bytesPart, CONFIG_BYTES, corrupt, type FilePart, type Source } from "./file-part.js";
import { NUMBERS } from "./numbers.js";
import { show } from "./options.js";
import { framed, PREFIX, parse, readHeader } from "./safetensors.js";
import { ADAPTER_FILES } from "./save-types.js";

type Fields = { [name: string]: unknown };

/** Bytes of a header at most. */
const HEADER_BYTES = 16 << 20;
/** What is before the names of a model's modules. */
const BASE = "base_model.model.";

/** A matrix of a module: A is `[rank, columns]`, B `[rows, rank]`. */
interface Matrix {
  readonly name: string;
  readonly module: string;
  readonly kind: "A" | "B";
  readonly dtype: string;
  readonly shape: readonly [number, number];
  readonly begin: number;
  readonly end: number;
}

/** The same files, with a plain adapter in them: the module reads no other. */
export async function plainAdapter(source: Source): Promise<Source> {
  const [configFile, weightsFile] = ADAPTER_FILES as [string, string];
  const text = await readText(source, configFile, CONFIG_BYTES, "invalid-config");
  const config = fieldsOf(text);
  const file = await required(source, weightsFile);
  const plain = config && (await madePlain(source.place(configFile), config, file));
  return {
    place: (name) => source.place(name),
    async find(name, most) {
      if (name === configFile) return bytesPart(name, encoded(plain?.config ?? text));
      if (name === weightsFile) return plain?.file ?? file;
      return source.find(name, most);
    },
  };
}

const encoded = (text: string) => new TextEncoder().encode(text);

/** The fields; undefined for what the module will refuse. */
function fieldsOf(text: string): Fields | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? (value as Fields) : undefined;
  } catch {
    return undefined;
  }
}

/** The field of a saved adapter that names the model under it. */
export const BASE_NAME = "base_model_name_or_path";

/** What names the model under an adapter, in the text of its config. */
export function baseNameIn(text: string): string | undefined {
  const name = fieldsOf(text)?.[BASE_NAME];
  return typeof name === "string" && name ? name : undefined;
}

/** Fields that choose modules otherwise than by a list, and what they hold where they choose none. */
const CHOICES = ["layers_to_transform", "layers_pattern", "exclude_modules"] as const;

const isEmpty = (value: unknown) =>
  value === undefined || value === null || value === "" || Object.keys(Object(value)).length === 0;

async function madePlain(place: string, config: Fields, file: FilePart) {
  const { target_modules: targets } = config;
  const byPattern = typeof targets === "string" && targets !== "all-linear";
  const chosen = byPattern || CHOICES.some((name) => !isEmpty(config[name]) || config[name] === 0);
  const patterns = ["rank_pattern", "alpha_pattern"].some((name) => !isEmpty(config[name]));
  const matrices = await matricesIn(file);
  if (!chosen && !patterns) return undefined;
  const modules = [...new Set(matrices.map(({ module }) => module))];
  if (modules.length === 0) throw corrupt(`${file.place} has no matrix of an adapter`);
  const plain: Fields = { ...config, target_modules: modules, rank_pattern: {}, alpha_pattern: {} };
  for (const name of CHOICES) plain[name] = null;
  const ranks = new Map<string, number>();
  for (const { kind, module, shape } of matrices) if (kind === "A") ranks.set(module, shape[0]);
  const rank = Math.max(...ranks.values());
  expectRanks(place, config, ranks);
  const alphaOf = patternOf(`${place}: alpha_pattern`, config["alpha_pattern"]);
  const own = Number(config["lora_alpha"] ?? 8);
  const scaled = (alpha: number, of: number) =>
    alpha / (config["use_rslora"] === true ? Math.sqrt(of) : of);
  const scale = scaled(own, rank);
  const factors = new Map(
    modules.map((module) => {
      return [module, scaled(alphaOf(module) ?? own, ranks.get(module) ?? rank) / scale];
    }),
  );
  plain["r"] = rank;
  const even = [...ranks.values()].every((one) => one === rank);
  const same = even && [...factors.values()].every((factor) => factor === 1);
  const text = JSON.stringify(plain);
  return { config: text, file: same ? file : await widened(file, matrices, rank, factors) };
}

/** Refuses ranks that the config gives and the file's matrices do not have. */
function expectRanks(place: string, config: Fields, ranks: ReadonlyMap<string, number>): void {
  const rankOf = patternOf(`${place}: rank_pattern`, config["rank_pattern"]);
  for (const [module, own] of ranks) {
    const said = rankOf(module) ?? Number(config["r"] ?? 8);
    if (said === own) continue;
    throw new TinyloomError(
      "invalid-config",
      `${place}: r and rank_pattern give ${module} the rank ${said}, and its matrix has ${own}; the files are of two adapters`,
    );
  }
}

/** The matrices of an adapter's file. What is no such matrix is refused with the reason. */
async function matricesIn(file: FilePart): Promise<Matrix[]> {
  const header = await readHeader(file, HEADER_BYTES);
  const data = PREFIX + header.length;
  const found: Matrix[] = [];
  let tensors: ReturnType<typeof parse>["order"];
  try {
    tensors = parse(header).order;
  } catch {
    return []; // the module says what is wrong with it
  }
  for (const [name, { dtype, shape, data_offsets }] of tensors) {
    const [, before = "", kind] = /^(.*)\.lora_([AB])\.weight$/.exec(name) ?? [];
    if (kind === undefined) {
      if (!EMBEDDING.test(name)) continue;
      throw corrupt(
        `${file.place} has ${name}: PEFT has stored an embedding or a head with the adapter, because it was trained or its ` +
          "vocabulary was grown. tinyloom's adapters have matrices of layers alone: merge in PEFT with " +
          "model.merge_and_unload().save_pretrained(folder), and load that folder with Model.fromPretrained; or, where " +
          "nothing of it was trained, save the adapter again with save_embedding_layers=False",
      );
    }
    if (shape?.length !== 2 || data_offsets?.length !== 2) continue;
    const module = before.startsWith(BASE) ? before.slice(BASE.length) : before;
    const [begin, end] = data_offsets.map((at) => data + at) as [number, number];
    found.push({
      name,
      module,
      kind: kind as "A" | "B",
      dtype,
      shape: shape as [number, number],
      begin,
      end,
    });
  }
  return found;
}

const EMBEDDING =
  /(^|\.)(embed_tokens|lm_head|wte|wpe|embed_in|embed_out)\.|lora_embedding_|trainable_tokens/;

/** What a pattern of PEFT gives a module: its first key that the end of the name matches, as Python's `re` reads it. */
function patternOf(place: string, pattern: unknown): (module: string) => number | undefined {
  const entries = Object.entries((pattern ?? {}) as { [key: string]: unknown }).map(
    ([key, value]) => {
      if (typeof value !== "number" || !(value > 0)) {
        throw new TinyloomError(
          "invalid-config",
          `${place}.${key} is ${show(value)}; it has to be above 0`,
        );
      }
      try {
        return [new RegExp(`^(?:.*\\.)?(?:${key})$`), value] as const;
      } catch (cause) {
        const message = `${place} has the expression ${show(key)}, which JavaScript does not read; name modules`;
        throw new TinyloomError("invalid-config", message, { cause });
      }
    },
  );
  return (module) => entries.find(([key]) => key.test(module))?.[1];
}

/** The file with matrices of one rank, whose further rows and columns are zero, and with B times a factor. */
async function widened(
  file: FilePart,
  matrices: readonly Matrix[],
  rank: number,
  factors: ReadonlyMap<string, number>,
): Promise<FilePart> {
  const header: Fields = {};
  const parts: Float32Array[] = [];
  let at = 0;
  for (const { name, module, kind, dtype, shape, begin, end } of matrices) {
    const numbers = NUMBERS[dtype]?.(await file.read(begin, end));
    if (!numbers || numbers.length !== shape[0] * shape[1]) {
      throw corrupt(`${file.place}: ${name} is of ${dtype}; F32, F16 and BF16 are read`);
    }
    const values = kind === "A" ? numbers : numbers.map((one) => one * (factors.get(module) ?? 1));
    const [rows, columns] = kind === "A" ? [rank, shape[1]] : [shape[0], rank];
    const wide = new Float32Array(rows * columns);
    for (let row = 0; row < shape[0]; row++) {
      wide.set(values.subarray(row * shape[1], (row + 1) * shape[1]), row * columns);
    }
    header[name] = {
      dtype: "F32",
      shape: [rows, columns],
      data_offsets: [at, at + wide.byteLength],
    };
    at += wide.byteLength;
    parts.push(wide);
  }
  file.rest?.();
  const first = framed(header);
  const bytes = new Uint8Array(first.length + at);
  bytes.set(first);
  let begin = first.length;
  for (const part of parts) {
    bytes.set(new Uint8Array(part.buffer), begin);
    begin += part.byteLength;
  }
  return { ...bytesPart(file.name, bytes), place: file.place, remote: file.remote };
}
