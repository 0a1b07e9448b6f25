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
 * Where the last visit has fetched a new version of the page, that is loaded instead of this one. A page that asks for
 * nothing else waits for this; `service-worker.ts` says why.
 */
export async function takeNewVersion(): Promise<void> {
  const { serviceWorker } = navigator;
  if (!serviceWorker?.controller) return;
  await Promise.race([taken(serviceWorker), new Promise((goes) => setTimeout(goes, PATIENCE))]);
}

/** Ends where this page stays the old version. */
async function taken(serviceWorker: ServiceWorkerContainer): Promise<void> {
  const kept = await serviceWorker.getRegistration();
  const waiting = kept?.waiting;
  if (!waiting) return;
  await new Promise((stays) => {
    serviceWorker.oncontrollerchange = () => {
      // After its patience the page may train: then the next visit has the new version.
      if (document.body.dataset["state"] !== "training") location.reload();
    };
    serviceWorker.onmessage = stays;
    waiting.postMessage("take over");
  });
}
