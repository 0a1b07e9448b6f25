/**
 * The four parts of `tinyloom` that load when they are first used. `text` has datasets. `tokenizers` has those of files, their
 * training, and conversations. `deferred` has what a page needs once it has a GPU device, and loads beside the wasm module.
 * `gguf` reads and writes GGUF files.
 */

import { TinyloomError } from "./error.js";
import { type Hints, hints } from "./hints.js";
import { show } from "./value-text.js";

const parts = {
  text: () => import("./text/index.js"),
  tokenizers: () => import("./text/tokenizers.js"),
  deferred: () => import("./deferred.js"),
  gguf: () => import("./gguf/index.js"),
};

type Parts = { readonly [K in keyof typeof parts]: Awaited<ReturnType<(typeof parts)[K]>> };

/** Gives the parts that `tinyloom/inline` brings, for hosts where nothing can be loaded later. */
export function carryParts({ text, tokenizers, deferred, gguf }: Parts): void {
  parts.text = () => Promise.resolve(text);
  parts.tokenizers = () => Promise.resolve(tokenizers);
  parts.deferred = () => Promise.resolve(deferred);
  parts.gguf = () => Promise.resolve(gguf);
  Object.assign(hints, deferred.words);
}

/** Parts that have loaded. To import one anew takes some 50 µs in Node, which a score of 512 tokens would show. */
const kept: { -readonly [K in keyof Parts]?: Parts[K] } = {};

async function loaded<K extends keyof Parts>(name: K): Promise<Parts[K]> {
  try {
    if (!kept[name]) {
      kept[name] = (await parts[name]()) as Parts[K];
      Object.assign(hints, (kept[name] as { readonly words?: Hints }).words);
    }
    return kept[name] as Parts[K];
  } catch (cause) {
    throw new TinyloomError(
      "module-unavailable",
      `a part of tinyloom could not be loaded (${show(cause)}); import "tinyloom/inline", which carries all`,
      { cause },
    );
  }
}

/** What a check gives; where it refuses something, once more with words for what may have been meant. */
export async function told<T>(check: () => T): Promise<T> {
  try {
    return check();
  } catch {
    await deferredPart().catch(() => undefined);
    return check();
  }
}

export const textPart = () => loaded("text");
export const tokenizersPart = () => loaded("tokenizers");
export const deferredPart = () => loaded("deferred");
export const ggufPart = () => loaded("gguf");
