/** The package that reads tokenizers: it is loaded when it is needed, and the user installs it. */

import { TinyloomError } from "../error.js";
import { show } from "../options.js";
import { wholeUrl } from "../page-address.js";
import { addressInPage } from "../page-services.js";

/**
 * The module `@huggingface/tokenizers`.
 *
 * @param library - the module itself or its address, where the caller gives one.
 * @throws {@link TinyloomError} `module-unavailable`.
 */
export async function load<T>(library: unknown): Promise<T> {
  if (typeof library === "object" && library !== null) return library as T;
  try {
    const module = await imported(library);
    // Parcel puts an empty module where a package is not installed, and `alias` of package.json asks for it.
    if (!("Tokenizer" in module)) throw new TypeError("it has no Tokenizer");
    return module as T;
  } catch (cause) {
    throw new TinyloomError(
      "module-unavailable",
      `this needs the package @huggingface/tokenizers, which could not be loaded (${show(cause)}); install it ` +
        "(npm install @huggingface/tokenizers). A page without a bundler names it in its import map, for its worker too, as " +
        '"./node_modules/@huggingface/tokenizers/dist/tokenizers.mjs". With Parcel, ' +
        "and where a browser has no import.meta.resolve, give { library }: its module, or the module's address",
      { cause },
    );
  }
}

/** The module at an address, which no bundler is to look for. */
const at = (address: string): Promise<object> =>
  import(/* @vite-ignore */ /* webpackIgnore: true */ address);

async function imported(library: unknown): Promise<object> {
  if (typeof library === "string") return at(wholeUrl("library", library).href);
  // Within `try`, so that bundlers warn, and do not fail, where the package is not installed.
  try {
    return await import("@huggingface/tokenizers");
  } catch (cause) {
    const address = await addressInPage("@huggingface/tokenizers");
    if (address) return at(address);
    throw new TypeError(show(cause), { cause });
  }
}
