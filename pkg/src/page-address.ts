/** The address that relative URLs start from. */

let given: string | undefined;

/** Sets the address of the page that this worker serves: its own is that of the worker's file. */
export function setBase(href: string | undefined): void {
  given = href;
}

/** The address of the page, or of this worker; undefined outside a browser. */
export function baseAddress(): string | undefined {
  return given ?? (typeof location === "object" ? location?.href : undefined);
}
