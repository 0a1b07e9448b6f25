/** A GGUF file as the folder of files that it would be on the hub. */

import { bytesPart, corrupt, type FilePart, type Source } from "../file-part.js";
import { GENERATION_FILE, generationOf } from "../notes.js";
import { Blocks, elementOf } from "./elements.js";
import { familyOf, rulesOf } from "./families.js";
import { Keys, refused } from "./metadata.js";
import { GGUF_NAMES } from "./names.js";
import { type GgufHead, type GgufTensor, readHead } from "./parse.js";
import { configOf, type Divisors, familyIn } from "./read-config.js";
import { tokenizerOf } from "./read-tokenizer.js";
import { LONG_FACTORS, ROPE_FREQS, SHORT_FACTORS } from "./rope.js";
import { type NameOf, weightsOf } from "./weights.js";

/** Tensors that are no weights: divisors of angles. */
const DIVISORS: ReadonlySet<string> = new Set([ROPE_FREQS, LONG_FACTORS, SHORT_FACTORS]);
/** What gives the logits has no prefix. */
const HEADS: ReadonlySet<string> = new Set(["lm_head", "embed_out"]);

/** Opens the file: its frame is read, and no tensor. */
export async function openGguf(file: FilePart): Promise<Source> {
  const head = await readHead(file);
  const keys = () => new Keys(file.place, head.metadata);
  const parts = Number(head.metadata.get("split.count") ?? 1);
  if (parts > 1) {
    throw refused(
      `${file.place} is one of ${parts} parts; join them with llama-gguf-split --merge, and give the one file`,
    );
  }
  const divisors = await divisorsIn(file, head);
  file.rest?.();
  let made: { readonly config: string; readonly weights: FilePart } | undefined;
  let tokenizer: { readonly [name: string]: string } | undefined;
  const model = () => {
    made ??= modelOf(file, head, keys(), divisors);
    return made;
  };
  const textOf = (name: string): string | undefined => {
    if (name === "config.json") return model().config;
    if (name === GENERATION_FILE) return endsOf(keys());
    if (name !== "tokenizer.json" && name !== "tokenizer_config.json") return undefined;
    tokenizer ??= tokenizerOf(keys());
    return tokenizer[name];
  };
  return {
    place: (name) => `${file.place} (${name})`,
    async find(name) {
      if (name === "model.safetensors") return model().weights;
      const text = textOf(name);
      return text === undefined ? undefined : bytesPart(name, new TextEncoder().encode(text));
    },
  };
}

/** Divisors of angles by their tensors' names. */
async function divisorsIn(file: FilePart, { tensors }: GgufHead): Promise<Divisors> {
  const found = new Map<string, Float32Array>();
  for (const { name, shape, element: type, begin } of tensors) {
    if (!DIVISORS.has(name)) continue;
    const element = elementOf(file.place, name, type);
    const count = shape.reduce((all, length) => all * length, 1);
    if (element.dtype !== "F32" || count > 1024) {
      throw corrupt(`${file.place}: ${name} has ${count} numbers of ${element.name}`);
    }
    const bytes = await file.read(begin, begin + count * 4);
    const values = new Float32Array(count);
    element.decode(new Blocks(bytes, element), values);
    found.set(name, values);
  }
  return found;
}

function modelOf(file: FilePart, head: GgufHead, keys: Keys, divisors: Divisors) {
  const type = familyIn(keys);
  const names = GGUF_NAMES[type] as (typeof GGUF_NAMES)[string];
  const embedding = head.tensors.find(({ name }) => name === "token_embd.weight");
  if (!embedding) throw corrupt(`${file.place} lacks the tensor token_embd.weight`);
  const config = configOf(keys, type, {
    vocabulary: embedding.shape[0] as number,
    has: (wanted) => head.tensors.some(({ name }) => name === wanted),
    divisors,
  });
  const modules = new Map(Object.entries(names.modules).map(([own, module]) => [module, own]));
  const { layers = "model.layers" } = rulesOf(type);
  const nameOf: NameOf = ({ name }) => {
    const [, layer, module = "", kind] = /^(?:blk\.(\d+)\.)?(\w+)\.(weight|bias)$/.exec(name) ?? [];
    const own = modules.get(module);
    if (own === undefined) {
      throw refused(
        `${file.place} has the tensor ${name}, which tinyloom does not compute for ${names.architecture}; use a model ` +
          "without it",
      );
    }
    const outside = HEADS.has(own) ? "" : layers.replace(/\w+$/, "");
    const before = layer === undefined ? outside : `${layers}.${layer}.`;
    return { name: `${before}${own}.${kind}`, module: own };
  };
  const tensors: readonly GgufTensor[] = head.tensors.filter(({ name }) => !DIVISORS.has(name));
  // Head sizes by Llama's names.
  const renamed = familyOf(config).renamed?.(config) ?? config;
  const weights = weightsOf(file, tensors, names, nameOf, renamed);
  return { config: `${JSON.stringify(config, null, 2)}\n`, weights };
}

/** Ends of a text: what ends it, what ends a turn, and what ends a message before a tool's. */
function endsOf(keys: Keys): string | undefined {
  const ids = ["eos", "eot", "eom"].map((name) => keys.number(`tokenizer.ggml.${name}_token_id`));
  const ends = [...new Set(ids.filter((id) => id !== undefined))];
  return ends.length > 0 ? generationOf(ends) : undefined;
}
