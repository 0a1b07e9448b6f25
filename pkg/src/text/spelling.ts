/** How the ids of a tokenizer spell a text, where each stands for some of its bytes. */

import { byteLevelBytes } from "./bpe.js";
import { byteOf } from "./decoders.js";
import { partsOf, type TokenizerJson, textsOf } from "./tokenizer-json.js";

type BytesById = (id: number) => Uint8Array;

/** The bytes that each id of a tokenizer stands for, where they are known. */
const pieces = new WeakMap<object, BytesById>();

/** The bytes that each of a tokenizer's ids stands for. */
export const bytesOf = (tokenizer: object): BytesById | undefined => pieces.get(tokenizer);

/** Says which bytes the ids of a tokenizer stand for. */
export const spells = (tokenizer: object, bytes: BytesById): void => {
  pieces.set(tokenizer, bytes);
};

/**
 * Which bytes each id stands for: of byte-level tokens by their characters, of those with byte fallback by
 * their text with spaces for `▁`, and `<0x0A>` for one byte. Undefined of tokens that are decoded otherwise,
 * as in WordPiece.
 */
export function spellingOf(json: TokenizerJson): BytesById | undefined {
  const { decoder, model } = json;
  if (model.type !== "BPE") return undefined;
  const parts = partsOf(decoder, "decoders");
  const kinds = parts.map((part) => part?.type).join();
  const byteLevel = kinds === "ByteLevel";
  if (!byteLevel && !/^Replace,ByteFallback,Fuse(,Strip)?$/.test(kinds)) return undefined;
  const replaced = JSON.stringify([parts[0]?.["pattern"], parts[0]?.["content"]]);
  const [, , , cut] = parts;
  const strips =
    cut === undefined || (cut["content"] === " " && cut["start"] === 1 && cut["stop"] === 0);
  if (!byteLevel && (replaced !== '[{"String":"▁"}," "]' || !strips)) return undefined;
  const texts = textsOf(json);
  const utf8 = new TextEncoder();
  return (id) => {
    const text = texts[id] ?? "";
    if (byteLevel) return byteLevelBytes(text);
    const byte = byteOf(text);
    return byte === undefined ? utf8.encode(text.replaceAll("▁", " ")) : Uint8Array.of(byte);
  };
}
