/**
 * The service worker: keeps all files of the page, and answers with them. The build puts their list in. A new version
 * of the page is fetched as a whole. It takes over once no tab has the old one, or where the one tab that is open has
 * just been loaded, waits and says so: files of two versions never meet.
 */
import { cleanupOutdatedCaches, type PrecacheEntry, precacheAndRoute } from "workbox-precaching";

interface Worker {
  readonly __WB_MANIFEST: readonly PrecacheEntry[];
  readonly registration: { readonly scope: string };
  readonly clients: {
    matchAll(options: {
      type: "window";
      includeUncontrolled: true;
    }): Promise<readonly { readonly url: string }[]>;
  };
  skipWaiting(): Promise<void>;
  addEventListener(type: "message", hears: (event: Asked) => void): void;
}
interface Asked {
  readonly data: unknown;
  readonly source: { postMessage(answer: string): void };
  waitUntil(work: Promise<unknown>): void;
}
declare const self: Worker;

cleanupOutdatedCaches();
precacheAndRoute([...self.__WB_MANIFEST], {
  directoryIndex: "index.html",
  // A query changes nothing of a page that is made of files.
  ignoreURLParametersMatching: [/./],
});

self.addEventListener("message", (event) => {
  if (event.data === "take over") event.waitUntil(takeOver(event));
});

/**
 * Milliseconds to wait until the page has fetched everything in its markup. Chromium activates the new worker only when
 * the old one has stopped. A request meanwhile restarts the old one for half a minute or more, and sometimes it then
 * never answers.
 */
const QUIET = 2000;

async function takeOver({ source }: Asked): Promise<void> {
  if (await isOneTab()) {
    await new Promise((quiet) => setTimeout(quiet, QUIET));
    if (await isOneTab()) return self.skipWaiting();
  }
  source.postMessage("another tab is open");
}

async function isOneTab(): Promise<boolean> {
  // The tabs of the old version are not this worker's own yet.
  const all = await self.clients.matchAll({ type: "window", includeUncontrolled: true });
  return all.filter(({ url }) => url.startsWith(self.registration.scope)).length <= 1;
}
