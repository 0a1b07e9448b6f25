/**
 * The service worker: keeps all files of the page, and answers with them. The build puts their list in. A new version
 * of the page is fetched as a whole. It takes over once no tab has the old one, or where the one tab that is open has
 * just been loaded and says so: files of two versions never meet.
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
  addEventListener(
    type: "message",
    hears: (event: { data: unknown; waitUntil(work: Promise<unknown>): void }) => void,
  ): void;
}
declare const self: Worker;

cleanupOutdatedCaches();
precacheAndRoute([...self.__WB_MANIFEST], {
  directoryIndex: "index.html",
  // A query changes nothing of a page that is made of files.
  ignoreURLParametersMatching: [/./],
});

self.addEventListener("message", (event) => {
  if (event.data === "take over") event.waitUntil(takeOver());
});

async function takeOver(): Promise<void> {
  // The tabs of the old version are not this worker's own yet.
  const all = await self.clients.matchAll({ type: "window", includeUncontrolled: true });
  const tabs = all.filter(({ url }) => url.startsWith(self.registration.scope));
  if (tabs.length <= 1) await self.skipWaiting();
}
