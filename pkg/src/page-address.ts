/** The address that relative URLs start from. */

import { invalid, show } from "./options.js";

let given: string | undefined;

/** Sets the address of the page that this worker serves: its own is that of the worker's file. */
export function setPageAddress(href: string | undefined): void {
  given = href;
}

/** The address of the page, or of this worker; undefined outside a browser. */
export function pageAddress(): string | undefined {
  return given ?? (typeof location === "object" ? location?.href : undefined);
}

/** A URL made whole by the page's. */
export function wholeUrl(where: string, source: string | URL, otherwise = ""): URL {
  const page = pageAddress();
  try {
    return new URL(source, page);
  } catch {
    throw invalid(
      `${where}: ${show(String(source))} is not a URL, and outside a page it has to be a whole one: ` +
        `https:…, in Node also file:… (pathToFileURL makes one of a path)${otherwise}`,
    );
  }
}
