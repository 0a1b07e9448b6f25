/** The worker itself: opened here, or the user's own. */

import { TinyloomError } from "../error.js";
import { inNode } from "../node.js";
import { threads } from "./node.js";
import { CONNECT } from "./wire.js";

/** What a worker of the web and one of Node have in common. */
export interface WorkerLike {
  postMessage(message: unknown, transfer: Transferable[]): void;
}

interface Events {
  addEventListener?(type: string, listener: (event: unknown) => void): void;
  on?(type: string, listener: (event: unknown) => void): void;
}

const OWN =
  "open the worker yourself and pass connect({ worker }); its file needs two lines: " +
  'import { serve } from "tinyloom/worker"; serve();';

/** Opens the package's own worker. */
export async function openWorker(): Promise<WorkerLike & { terminate(): unknown }> {
  try {
    if (typeof Worker === "function") {
      // In this form bundlers find the file.
      return new Worker(new URL("../worker-thread.js", import.meta.url), { type: "module" });
    }
    if (inNode()) {
      const file = "../worker-thread.js"; // a variable: bundlers need not copy it for Node
      const { Worker: Thread } = await threads();
      return new Thread(new URL(file, import.meta.url)) as unknown as WorkerLike & {
        terminate(): unknown;
      };
    }
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw unavailable(`the worker could not be opened (${reason}); ${OWN}`, cause);
  }
  throw unavailable(
    'there is no Worker here; import from "tinyloom" instead, or call connect() from a page or a ' +
      "dedicated worker",
  );
}

/** Sends a port to the worker, and tells when it cannot answer or ends. */
export function join(
  worker: WorkerLike,
  port: MessagePort,
  failed: (error: TinyloomError, ended: boolean) => void,
): void {
  const { addEventListener, on } = worker as Events;
  const listen = (addEventListener ?? on)?.bind(worker);
  listen?.("error", (event) => {
    const { message } = event as { message?: string };
    const reason = message || "its file did not answer, or is no module of JavaScript";
    // In a page only a script that cannot run ends the worker; in Node any error that nobody catches does.
    failed(unavailable(`the worker failed: ${reason}; ${OWN}`), addEventListener === undefined);
  });
  listen?.("exit", () => failed(unavailable("the worker has ended; call connect() again"), true));
  worker.postMessage({ [CONNECT]: port }, [port]);
}

/** An error of code "worker-unavailable". */
export function unavailable(message: string, cause?: unknown): TinyloomError {
  return new TinyloomError("worker-unavailable", message, { cause });
}
