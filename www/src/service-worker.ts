/**
 * The service worker: keeps all files of the page, and answers with them. The build puts their list in. A new version
 * of the page is fetched as a whole, and takes over once no tab has the old one.
 */
import { cleanupOutdatedCaches, type PrecacheEntry, precacheAndRoute } from "workbox-precaching";

declare const self: { readonly __WB_MANIFEST: readonly PrecacheEntry[] };

cleanupOutdatedCaches();
precacheAndRoute([...self.__WB_MANIFEST], {
  directoryIndex: "index.html",
  // A query changes nothing of a page that is made of files.
  ignoreURLParametersMatching: [/./],
});
