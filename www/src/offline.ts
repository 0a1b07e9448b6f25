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

/** Milliseconds after which the page goes on without a new version that does not come. */
const PATIENCE = 10_000;

/**
 * Where the last visit has fetched a new version of the page, that is loaded instead of this one. What a page asks for
 * while the old version's worker ends would start that one anew, or hang (`service-worker.ts`): it waits for this.
 */
export async function takeNewVersion(): Promise<void> {
  const { serviceWorker } = navigator;
  if (!serviceWorker?.controller) return;
  const kept = await serviceWorker.getRegistration().catch(() => undefined);
  const waiting = kept?.waiting;
  if (!waiting) return;
  await new Promise((stays) => {
    serviceWorker.oncontrollerchange = () => location.reload();
    serviceWorker.onmessage = stays;
    setTimeout(stays, PATIENCE);
    waiting.postMessage("take over");
  });
}
