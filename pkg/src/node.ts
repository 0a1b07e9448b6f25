/** What is different in Node. */

type Fs = typeof import("node:fs/promises");
type Threads = typeof import("node:worker_threads");
type Network = typeof import("node:net");
type System = typeof import("node:os");

// By way of globalThis: bundlers replace a plain `process`, or parts of it, by what a page would see.
export const host = () => (globalThis as { process?: NodeJS.Process }).process;

/** Whether this is Node (or Deno or Bun, which have its modules too), and not a page or a worker. */
export function inNode(): boolean {
  return typeof host()?.versions?.node === "string";
}

/** This process among others. */
export function processId(): number {
  return host()?.pid ?? 0;
}

/** A module of Node's; its name is put together, so that bundlers for the web leave it alone. */
const ofNode = (name: string): Promise<unknown> =>
  import(/* @vite-ignore */ /* webpackIgnore: true */ ["node", name].join(":"));

/** Node's file system, for `file:` URLs, which its fetch does not read. */
export const fileSystem = () => ofNode("fs/promises") as Promise<Fs>;

/** Node's threads. */
export const threads = () => ofNode("worker_threads") as Promise<Threads>;

/** Node's sockets. */
export const network = () => ofNode("net") as Promise<Network>;

/** What Node knows of the system. */
export const system = () => ofNode("os") as Promise<System>;

/** Folder of what tinyloom keeps between sessions: that of caches, by XDG's rules or Windows'. */
export function cacheFolder(): string {
  const { XDG_CACHE_HOME, LOCALAPPDATA, HOME } = host()?.env ?? {};
  return `${XDG_CACHE_HOME || LOCALAPPDATA || `${HOME || "."}/.cache`}/tinyloom`;
}
