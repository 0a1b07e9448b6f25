/** What is loaded when it is first used, so that apps without it do not pay for it. */

import { TinyloomError } from "./error.js";
import { show } from "./value-text.js";

const parts = {
  /** Readers of datasets, tokenizers and their training. */
  text: () => import("./text/index.js"),
  /** What reads and writes files, and the text of generated tokens. */
  more: () => import("./deferred.js"),
  /** Files for llama.cpp. */
  gguf: () => import("./gguf/index.js"),
  /** What brings back what was lost with a GPU device. */
  recovery: () => import("./recovery/index.js"),
};

type Parts = { readonly [K in keyof typeof parts]: Awaited<ReturnType<(typeof parts)[K]>> };

/** Gives the parts that `tinyloom/inline` brings, for hosts where nothing can be loaded later. */
export function carryParts({ text, more, gguf, recovery }: Parts): void {
  parts.text = () => Promise.resolve(text);
  parts.more = () => Promise.resolve(more);
  parts.gguf = () => Promise.resolve(gguf);
  parts.recovery = () => Promise.resolve(recovery);
}

async function loaded<T>(part: () => Promise<T>): Promise<T> {
  try {
    return await part();
  } catch (cause) {
    throw new TinyloomError(
      "module-unavailable",
      `a part of tinyloom could not be loaded (${show(cause)}); import "tinyloom/inline", which carries all`,
      { cause },
    );
  }
}

export const textPart = () => loaded(parts.text);
export const morePart = () => loaded(parts.more);
export const ggufPart = () => loaded(parts.gguf);
export const recoveryPart = () => loaded(parts.recovery);
