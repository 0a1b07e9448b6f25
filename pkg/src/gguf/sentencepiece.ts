/**
 * What is read of SentencePiece's `tokenizer.model`: a message of Protocol Buffers, `ModelProto` in
 * https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto.
 */

import { corrupt } from "../file-part.js";
import { newDecoder } from "../tokenizer.js";

/** A token of SentencePiece. */
export interface Piece {
  readonly text: string;
  readonly score: number;
  /** Normal, unknown, control, user-defined, unused or byte: 1 to 6. */
  readonly type: number;
}

/** A field of a message: its number, and its value as a number or as bytes. */
type Field = readonly [number: number, value: number | Uint8Array];

/** `TrainerSpec.model_type` of byte-pair encoding. */
const BPE = 2;

/** The tokens of a file, in the order of their ids. */
export function piecesOf(file: Uint8Array): { readonly pieces: readonly Piece[] } {
  const pieces: Piece[] = [];
  let kind = 1;
  for (const [number, value] of fields(file)) {
    if (number === 1 && typeof value !== "number") pieces.push(pieceOf(value));
    if (number !== 2 || typeof value === "number") continue;
    for (const [inner, one] of fields(value)) if (inner === 3) kind = one as number;
  }
  if (pieces.length === 0) throw wrong();
  if (kind !== BPE) {
    throw corrupt("tokenizer.model is not of byte-pair encoding; llama.cpp would give other ids");
  }
  return { pieces };
}

function pieceOf(message: Uint8Array): Piece {
  let [text, score, type] = ["", 0, 1];
  for (const [number, value] of fields(message)) {
    if (number === 1 && typeof value !== "number")
      text = newDecoder().decode(value as Uint8Array<ArrayBuffer>);
    if (number === 2 && typeof value === "number") score = value;
    if (number === 3 && typeof value === "number") type = value;
  }
  return { text, score, type };
}

const wrong = () => corrupt("tokenizer.model is no file of SentencePiece");

/** The fields of a message, those of 32 bits as floats. */
function* fields(bytes: Uint8Array): Generator<Field> {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let at = 0;
  const varint = () => {
    let value = 0;
    for (let by = 1; ; by *= 128) {
      const byte = bytes[at++];
      if (byte === undefined) throw wrong();
      value += (byte & 0x7f) * by;
      if (byte < 0x80) return value;
    }
  };
  const skip = (length: number) => {
    at += length;
    if (at > bytes.length) throw wrong();
    return at - length;
  };
  while (at < bytes.length) {
    const tag = varint();
    const number = Math.floor(tag / 8);
    switch (tag % 8) {
      case 0:
        yield [number, varint()];
        break;
      case 1:
        skip(8);
        break;
      case 2: {
        const length = varint();
        const begin = skip(length);
        yield [number, bytes.subarray(begin, begin + length)];
        break;
      }
      case 5:
        yield [number, view.getFloat32(skip(4), true)];
        break;
      default:
        throw wrong();
    }
  }
}
