/** `dataset.document`: what a trainer sees of one document. */

import { integer, invalid, show } from "../options.js";
import { IGNORE_INDEX } from "../tokens.js";
import type { TokenStore } from "./store.js";
import type { DatasetDocument } from "./types.js";

/** A document by its number, with what is learned of it. Of one text they lie end to end. */
export function documentOf(
  store: TokenStore,
  sequenceLength: number,
  index: number,
): DatasetDocument {
  const starts = store.packed?.starts;
  const count = starts?.length ?? Math.ceil(store.length / sequenceLength);
  const allowed = integer(0, count - 1)(index);
  if (allowed) throw invalid(`dataset.document: the index is ${show(index)}; give ${allowed}`);
  const begin = starts?.[index] ?? index * sequenceLength;
  const end = starts ? (starts[index + 1] ?? store.length) : begin + sequenceLength;
  const length = Math.min(end, store.length) - begin;
  const { reader } = store;
  const targets = reader.read(begin, length, true);
  // A window's start, and the token after it, are no targets.
  const unlearned = reader === store ? 0 : store.windowStart.length + 1;
  if (length >= unlearned) targets.fill(IGNORE_INDEX, 0, unlearned);
  // What is learned is the prediction of a token from those before it.
  const learned = Uint8Array.from(targets, (id, at) => Number(at > 0 && id !== IGNORE_INDEX));
  return { tokens: Uint32Array.from(reader.read(begin, length, false)), learned };
}
