/**
 * `Precompiled`, the normaliser of SentencePiece: a table of what characters become. `@huggingface/tokenizers` does not
 * read the table, and takes NFKC for it. The table is a double array of Darts, as SentencePiece writes it: each unit has
 * a label, the distance to its children, and whether one of them is a leaf with a value.
 */

import { corrupt } from "../file-part.js";
import { show } from "../options.js";
import type { TokenizerPart } from "./tokenizer-json.js";

/** Bytes of a group of characters that is looked up as one. */
const WHOLE = 6;

/** What changes a text by the table. */
export function precompiledOf(place: string, part: TokenizerPart): (text: string) => string {
  const { units, texts } = tableOf(place, part["precompiled_charsmap"]);
  const utf8 = new TextEncoder();
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  /** What the shortest beginning that the table has becomes. As in Python, it stands for all that was looked up. */
  const changed = (text: string): string | undefined => {
    const at = shortest(units, utf8.encode(text));
    if (at === undefined) return undefined;
    const end = texts.indexOf(0, at);
    return decoder.decode(texts.subarray(at, end < 0 ? texts.length : end));
  };
  const groups = new Intl.Segmenter("en", { granularity: "grapheme" });
  return (text) => {
    let out = "";
    for (const { segment } of groups.segment(text)) {
      const whole = utf8.encode(segment).length < WHOLE ? changed(segment) : undefined;
      if (whole !== undefined) out += whole;
      else for (const one of segment) out += changed(one) ?? one;
    }
    return out;
  };
}

interface Table {
  readonly units: Uint32Array;
  /** What characters become, each with a zero after it. */
  readonly texts: Uint8Array<ArrayBuffer>;
}

/** The length of the double array, the double array, and the texts. */
function tableOf(place: string, given: unknown): Table {
  try {
    const bytes = Uint8Array.from(atob(given as string), (one) => one.charCodeAt(0));
    const view = new DataView(bytes.buffer);
    const length = view.getUint32(0, true);
    if (typeof given === "string" && length % 4 === 0 && length > 0 && 4 + length <= bytes.length) {
      const units = Uint32Array.from({ length: length / 4 }, (_, at) =>
        view.getUint32(4 + at * 4, true),
      );
      return { units, texts: bytes.slice(4 + length) };
    }
  } catch {
    // refused below
  }
  throw corrupt(`${place}: precompiled_charsmap of a normalizer is ${show(given)}, and no table`);
}

/** The distance from a unit to its children. */
const offset = (unit: number) => (unit >>> 10) << ((unit & 0x200) >>> 6);

/** The value of the shortest beginning of the key. */
function shortest(units: Uint32Array, key: Uint8Array): number | undefined {
  let node = offset(units[0] ?? 0);
  for (const byte of key) {
    if (byte === 0) return undefined;
    node ^= byte;
    const unit = units[node] ?? 0;
    if ((unit & 0x8000_00ff) !== byte) return undefined;
    node ^= offset(unit);
    if (unit & 0x100) return (units[node] ?? 0) & 0x7fff_ffff;
  }
  return undefined;
}
