/** Keeps all parts of the page in the browser, so that the next visit needs no network. */

let asked = false;

/**
 * Fetches what is not there yet, in the background. The page calls it once its first run has ended: until then the
 * network belongs to what the visitor waits for.
 */
export function keepForOffline(): void {
  if (asked || import.meta.env.DEV || !("serviceWorker" in navigator)) return;
  asked = true;
  const worker = new URL("service-worker.js", document.baseURI);
  // A browser that refuses it, as in some private windows, keeps nothing.
  navigator.serviceWorker.register(worker).catch(() => undefined);
}

/** Where the last visit has fetched a new version of the page, that is loaded instead of this one. */
export async function takeNewVersion(): Promise<void> {
  if (!("serviceWorker" in navigator)) return;
  const kept = await navigator.serviceWorker.getRegistration().catch(() => undefined);
  if (!kept?.waiting) return;
  navigator.serviceWorker.addEventListener("controllerchange", () => location.reload());
  kept.waiting.postMessage("take over");
}
