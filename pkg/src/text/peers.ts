/** Packages of others that are loaded when they are needed, and which the user installs. */

import { TinyloomError } from "../error.js";
import { show } from "../options.js";
import { wholeUrl } from "../source.js";

/**
 * The module of an optional package.
 *
 * @param library - the module itself or its address, where the caller gives one.
 * @throws {@link TinyloomError} `module-unavailable`.
 */
export async function load<T>(name: "tokenizers" | "jinja", library: unknown): Promise<T> {
  if (typeof library === "object" && library !== null) return library as T;
  try {
    const module = await imported(name, library);
    // Parcel puts an empty module where a package is not installed, and `alias` of package.json asks for it.
    if (!(EXPORTS[name] in module)) throw new TypeError(`it has no ${EXPORTS[name]}`);
    return module as T;
  } catch (cause) {
    throw new TinyloomError(
      "module-unavailable",
      `this needs the package @huggingface/${name}, which could not be loaded (${show(cause)}); install it ` +
        `(npm install @huggingface/${name}). A page without a bundler names it in its import map, as ` +
        `"./node_modules/@huggingface/${name}/dist/${FILES[name]}". With Parcel, ` +
        "and in a worker without a bundler, give { library }: its module, or the module's address",
      { cause },
    );
  }
}

/** Where each of them lies in its package. */
const FILES = { tokenizers: "tokenizers.mjs", jinja: "index.js" };
/** What each of them has to export. */
const EXPORTS = { tokenizers: "Tokenizer", jinja: "Template" };

async function imported(name: "tokenizers" | "jinja", library: unknown): Promise<object> {
  if (typeof library === "string") {
    const { href } = wholeUrl("library", library);
    return (await import(/* @vite-ignore */ /* webpackIgnore: true */ href)) as object;
  }
  // Within `try`, so that bundlers warn, and do not fail, where the package is not installed.
  try {
    return name === "jinja"
      ? await import("@huggingface/jinja")
      : await import("@huggingface/tokenizers");
  } catch (cause) {
    throw new TypeError(show(cause), { cause });
  }
}
