/** What is different in Node. */

type Fs = typeof import("node:fs/promises");

/** Whether this is Node (or Deno, which has its modules too), and not a page or a worker. */
export function inNode(): boolean {
  return typeof process === "object" && typeof process.versions?.node === "string";
}

/** Node's file system, for `file:` URLs, which its fetch does not read. */
export function fileSystem(): Promise<Fs> {
  const specifier = "node:fs/promises"; // a variable, so that bundlers for the web leave it alone
  return import(/* @vite-ignore */ /* webpackIgnore: true */ specifier) as Promise<Fs>;
}

/** Folder of what tinyloom keeps between sessions: that of caches, by XDG's rules or Windows'. */
export function cacheFolder(): string {
  const { XDG_CACHE_HOME, LOCALAPPDATA, HOME } = process.env;
  return `${XDG_CACHE_HOME || LOCALAPPDATA || `${HOME || "."}/.cache`}/tinyloom`;
}
