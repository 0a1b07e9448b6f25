/** The page as a source of the wasm module's bytes, where this is a worker. */

let page: (() => Promise<string>) | undefined;

/** Makes the page the one that is asked. */
export function askPage(ask: typeof page): void {
  page = ask;
}

/** The module of the page, whose bundle has it as JavaScript; undefined where there is no page to ask. */
export function packedOfPage(): Promise<string> | undefined {
  return page?.();
}
