/** What is loaded when it is first used, so that apps without it do not pay for it. */

import { TinyloomError } from "./error.js";

const parts = {
  /** Readers of datasets, tokenizers and their training. */
  text: () => import("./text/index.js"),
  /** Checkpoint files over HTTP, and those that are written to streams. */
  files: () => import("./files.js"),
};

type Parts = { readonly [K in keyof typeof parts]: Awaited<ReturnType<(typeof parts)[K]>> };

/** Gives the parts that `tinyloom/inline` brings, for hosts where nothing can be loaded later. */
export function carryParts({ text, files }: Parts): void {
  parts.text = () => Promise.resolve(text);
  parts.files = () => Promise.resolve(files);
}

async function loaded<T>(part: () => Promise<T>): Promise<T> {
  try {
    return await part();
  } catch (cause) {
    throw new TinyloomError(
      "module-unavailable",
      'a part of tinyloom could not be loaded; import "tinyloom/inline", which carries all',
      { cause },
    );
  }
}

export const textPart = () => loaded(parts.text);
export const filesPart = () => loaded(parts.files);
