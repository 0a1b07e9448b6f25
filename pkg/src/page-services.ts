/** What a worker asks of its page. */

/** The page, as its worker has it. */
export interface Page {
  /** The wasm module as base64 of gzip: the page's bundle has it as JavaScript. */
  packed(): Promise<string>;
  /** Asks the browser to keep what is stored, which only a page can. */
  persist(): Promise<boolean>;
  /** The address of a module by its name: a worker has no import map. */
  resolve(name: string): Promise<string | undefined>;
}

let page: Page | undefined;

/** Makes the page the one that is asked. */
export function askPage(ask: Page | undefined): void {
  page = ask;
}

/** The module of the page; undefined where there is no page to ask. */
export function packedOfPage(): Promise<string> | undefined {
  return page?.packed();
}

/** The address that the page's import map has for a module; undefined where it has none, or there is no page to ask. */
export const addressInPage = async (name: string): Promise<string | undefined> =>
  page?.resolve(name).catch(() => undefined);

/** Asks the browser to keep what is stored. Without an answer yet it is a promise of one. */
export async function persist(): Promise<boolean> {
  const { storage } = globalThis.navigator ?? {};
  if (typeof storage?.persist === "function") return storage.persist().catch(() => false);
  return (await page?.persist().catch(() => false)) ?? storage?.persisted?.() ?? false;
}
