/** What workers of Firefox cannot do. Seen in Firefox 153, and not in its issue tracker. */

/**
 * Whether this is a worker of Firefox. There `new Worker` sometimes never returns, and the worker that called it
 * does nothing any more: 39 of at most 1,600 calls.
 */
export const inFirefoxWorker = (): boolean =>
  typeof document === "undefined" && /Firefox\//.test(globalThis.navigator?.userAgent ?? "");

/**
 * A Blob whose parts can be read. In a worker of Firefox the read of a part sometimes never ends while a Blob of
 * another thread's memory is on its way: 6 of 14 times with 1 MB. Read whole it is copied, and all 14 ended.
 * Files of a disk are left alone: they may be large.
 */
export async function arrived(blob: Blob): Promise<Blob> {
  return inFirefoxWorker() && !(blob instanceof File) ? new Response(blob).blob() : blob;
}
