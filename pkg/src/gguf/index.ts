/** What is loaded when a GGUF file is first read, or a model saved as one. */

import type { ModelConfig } from "../model-config.js";
import { floats } from "../numbers.js";
import { check, invalid, oneOf, type Rules, show } from "../options.js";
import type { RawModel, RawWriter } from "../raw-types.js";
import { PREFIX, parse } from "../safetensors.js";
import type { GgufOptions, Piece, Put, TakePiece } from "../save-types.js";
import { stored } from "../stored-runs.js";
import { ELEMENTS, type Element, expectHeld, type GgufType, sizeOf } from "./blocks.js";
import { familyOf, placed, writeFamily } from "./families.js";
import type { Change, Family } from "./family.js";
import { aligned, header, Metadata, type TensorInfo } from "./format.js";
import { vocabularyOf } from "./vocabulary.js";

export { openGguf } from "./source.js";

/** Bytes of a tensor that are changed and written at a time. */
const PIECE = 1 << 20;

/** A tensor of the file. */
interface Tensor extends TensorInfo {
  readonly type: Element;
  /** Its shape in the model. */
  readonly stored: readonly number[];
  /** Where the weights are: a parameter of the model, or here. */
  readonly from: number | Float32Array;
  readonly change?: Change;
}

/** A file that is about to be written. */
export interface GgufFile {
  readonly size: number;
  /** Writes it from the weights, in pieces. */
  write(read: ReadPieces, put: Put): Promise<void>;
}

/** Reads pieces of the weights back in order. */
type ReadPieces = (pieces: readonly Piece[], take: TakePiece) => Promise<void>;

const RULES: Rules<GgufOptions> = {
  type: oneOf(...Object.keys(ELEMENTS)),
  tokenizer: () => undefined,
  name: (value) => (typeof value === "string" && value ? undefined : "a string that is not empty"),
};

/**
 * Plans the file of a model, and refuses what llama.cpp would compute otherwise.
 *
 * @param options - of `save`.
 * @param adapted - whether there are adapters on the model.
 */
export async function ggufOf(
  options: GgufOptions & { readonly to?: unknown },
  json: string,
  weights: RawModel,
  adapted: boolean,
): Promise<GgufFile> {
  const { tokenizer, name } = options;
  const own = { type: options.type, tokenizer, name };
  const { type = "f16" } = check<GgufOptions>("save", own, RULES);
  if (stored.find(options.to)) {
    throw invalid(
      'save: a run of tinyloom/storage keeps checkpoints; give a directory or a stream of "model.gguf"',
    );
  }
  expectWhole(weights, adapted);
  const given = JSON.parse(json) as ModelConfig;
  const family = familyOf(given);
  const config = family.renamed?.(given) ?? given;
  const metadata = new Metadata();
  const tensors = tensorsOf(family, config, weights, type);
  const words = new Metadata();
  const tokens = (await vocabularyOf(tokenizer, config))(words);
  writeGeneral(metadata, family, { type, tensors, name: nameOf(name, config, tokens) });
  writeFamily(metadata, family, config);
  metadata.append(words);
  const first = header(metadata, tensors);
  const size = tensors.reduce((sum, one) => sum + aligned(one.size), first.length);
  return { size, write: (read, put) => write(first, tensors, config, { read, put }) };
}

/** Refuses a model that is not whole without more: packed, or with an adapter beside it. */
function expectWhole(weights: RawModel, adapted: boolean): void {
  if (!weights.isSaved()) {
    const cure = adapted
      ? "adapter.saveMerged(source) gives the files of both, Model.fromPretrained(runtime, files) loads these in f32"
      : "Model.fromPretrained(runtime, source) without the option weights loads these";
    throw invalid(
      `save: the model holds its matrices in ${weights.weights()}, and a GGUF file needs the checkpoint's own numbers: ${cure}, ` +
        'and save({ format: "gguf" }) of that model writes the file',
    );
  }
  if (adapted) {
    throw invalid(
      "save: the model has an adapter, which this file would be without; merge it with adapter.merge(), or free it",
    );
  }
}

/** The tensors in the file's order: that of the model, after what no checkpoint has. */
function tensorsOf(
  family: Family,
  config: ModelConfig,
  weights: RawWriter,
  type: GgufType,
): Tensor[] {
  const extra = Object.entries(family.extra?.(config) ?? {}).map(([name, values]) => {
    const shape = [values.length];
    const { f32 } = ELEMENTS;
    const size = sizeOf(shape, f32);
    return { name, shape, stored: shape, type: f32, element: f32.id, size, from: values };
  });
  const { order } = parse(weights.saveHeader().subarray(PREFIX));
  const named = order.map(([name, entry]) => ({
    ...placed(family, name),
    stored: (entry as unknown as { readonly shape: readonly number[] }).shape,
  }));
  const untied = named.some(({ name }) => name === HEAD);
  const head = untied ? HEAD : "token_embd.weight";
  const own = named.map(({ name, stored, change }, from) => {
    const shape = change?.shape?.(stored) ?? stored;
    const element = elementOf(name, shape, name === head && type === "q4_0" ? "q8_0" : type);
    const size = sizeOf(shape, element);
    return {
      name,
      shape,
      stored,
      type: element,
      element: element.id,
      size,
      from,
      ...(change && { change }),
    };
  });
  return [...extra, ...own];
}

/** The matrix that gives the logits, where it is not the embedding. */
const HEAD = "output.weight";

/**
 * The type of a tensor. Vectors, norms and learned positions stay in f32, and where no whole blocks fit a
 * row, the tensor is in f16, as `convert_hf_to_gguf.py` does.
 */
function elementOf(name: string, shape: readonly number[], type: GgufType): Element {
  if (shape.length < 2 || /(_norm|^position_embd)\.weight$/.test(name)) return ELEMENTS.f32;
  const element = ELEMENTS[type];
  return (shape.at(-1) as number) % element.block === 0 ? element : ELEMENTS.f16;
}

interface Content {
  readonly name: string;
  readonly type: GgufType;
  readonly tensors: readonly Tensor[];
}

function writeGeneral(
  metadata: Metadata,
  { architecture }: Family,
  { type, tensors, name }: Content,
): void {
  const count = tensors.reduce((sum, { shape }) => sum + sizeOf(shape, ELEMENTS.f32) / 4, 0);
  metadata.string("general.architecture", architecture);
  metadata.string("general.type", "model");
  metadata.string("general.name", name);
  metadata.string("general.size_label", sizeLabel(count));
  metadata.u32("general.file_type", ELEMENTS[type].file);
  metadata.u32("general.quantization_version", 2);
}

/** Tokens that llama.cpp looks for in a model of such a name. Without one of them it does not load the file. */
const PHI_3 = { name: /phi-?3/gi, tokens: ["</s>", "<unk>", "<s>", "<|endoftext|>"] } as const;

/**
 * The model's name in the file.
 *
 * @param tokens - of the vocabulary in the file, if there is one.
 */
function nameOf(
  given: string | undefined,
  config: ModelConfig,
  tokens: readonly string[] | undefined,
): string {
  const name = (given ?? nameIn(config)) || (config.model_type as string);
  const missing = tokens && PHI_3.tokens.find((token) => !tokens.includes(token));
  if (missing === undefined || name.search(PHI_3.name) < 0) return name;
  if (given === undefined) return name.replace(PHI_3.name, "phi 3");
  throw invalid(
    `save: llama.cpp takes a model with the name ${show(given)} for a Phi-3 with its tokenizer, and loads none without ` +
      `the token ${show(missing)}; give another name`,
  );
}

/** The last part of what transformers notes as the model's place, such as `org/name`. */
function nameIn({ _name_or_path: path }: ModelConfig): string | undefined {
  return typeof path === "string" ? path.split("/").filter(Boolean).at(-1) : undefined;
}

/** A number of weights with two digits or more, such as `135M` and `1.2K`. */
function sizeLabel(count: number): string {
  const [unit, letter] =
    count > 1e12 ? [1e12, "T"] : count > 1e9 ? [1e9, "B"] : count > 1e6 ? [1e6, "M"] : [1e3, "K"];
  const scaled = count / (unit as number);
  return `${scaled.toFixed(scaled < 9.5 ? 1 : 0)}${letter}`;
}

/** Some rows of a tensor. */
interface Rows extends Piece {
  readonly tensor: Tensor;
}

async function write(
  first: Uint8Array,
  tensors: readonly Tensor[],
  config: ModelConfig,
  { read, put }: { readonly read: ReadPieces; readonly put: Put },
): Promise<void> {
  await put(first);
  for (const tensor of tensors) {
    if (typeof tensor.from !== "number") await put(encoded(tensor, tensor.from, true));
  }
  const pieces = tensors.flatMap((tensor) => rowsOf(tensor, config));
  let gathered = new Float32Array();
  await read(pieces, async (bytes, at) => {
    const { tensor, begin, end } = pieces[at] as Rows;
    const last = end === sizeOf(tensor.stored, ELEMENTS.f32);
    if (!isWhole(tensor)) return put(encoded(tensor, changed(tensor, floats(bytes), config), last));
    if (begin === 0) gathered = new Float32Array(sizeOf(tensor.stored, ELEMENTS.f32) / 4);
    gathered.set(floats(bytes), begin / 4);
    if (!last) return;
    const values = changed(tensor, gathered, config);
    gathered = new Float32Array();
    const step = PIECE / 4;
    for (let from = 0; from < values.length; from += step) {
      const to = from + step;
      await put(encoded(tensor, values.subarray(from, to), to >= values.length));
    }
  });
}

/** Whether a tensor is changed when all of it has been read. */
const isWhole = ({ change }: Tensor) => change !== undefined && !change.together;

/** Pieces of whole rows, and of as many as a change needs together. */
function rowsOf(tensor: Tensor, config: ModelConfig): Rows[] {
  const { from: index, stored, change } = tensor;
  if (typeof index !== "number") return [];
  const size = sizeOf(stored, ELEMENTS.f32);
  const unit = 4 * columnsOf(stored) * (change?.together?.(config) ?? 1);
  const step = unit * Math.max(1, Math.floor(PIECE / unit));
  return Array.from({ length: Math.ceil(size / step) }, (_, at) => ({
    tensor,
    index,
    begin: at * step,
    end: Math.min(size, (at + 1) * step),
  }));
}

/** Elements of a row; a vector has rows of one. */
const columnsOf = (shape: readonly number[]) => (shape.length < 2 ? 1 : (shape.at(-1) as number));

/** The rows as the file's architecture has them. */
function changed(
  { stored, change }: Tensor,
  values: Float32Array,
  config: ModelConfig,
): Float32Array {
  if (!change) return values;
  const columns = columnsOf(stored);
  if (!change.together) return change.change(values, columns, config);
  const unit = change.together(config) * columns;
  for (let at = 0; at < values.length; at += unit) {
    values.set(change.change(values.subarray(at, at + unit), columns, config), at);
  }
  return values;
}

/** Weights as they lie in the file, and after the last ones what aligns the next tensor. */
function encoded({ name, type, size }: Tensor, values: Float32Array, last: boolean): Uint8Array {
  expectHeld(name, values, type);
  const padding = last ? aligned(size) - size : 0;
  const out = new Uint8Array((values.length / type.block) * type.bytes + padding);
  type.encode(values, out);
  return out;
}
