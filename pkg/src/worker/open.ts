/** The worker itself: opened here, or the user's own. */

import { TinyloomError } from "../error.js";
import { inNode, threads } from "../node.js";
import { openTrusted } from "../trusted-types-worker.js";
import { CONNECT } from "./wire.js";

/** What a worker of the web and one of Node have in common. */
export interface WorkerLike {
  postMessage(message: unknown, transfer: Transferable[]): void;
}

/** A worker that is opened here, and has to end. */
export type OwnWorker = WorkerLike & { terminate(): unknown };

interface Events {
  addEventListener?(type: string, listener: (event: unknown) => void): void;
  on?(type: string, listener: (event: unknown) => void): void;
}

const OWN =
  "open the worker yourself and pass connect({ worker }); its file needs two lines: " +
  'import { serve } from "tinyloom/worker"; serve();';

/** Opens the package's own worker, from its file. */
export async function openWorker(): Promise<OwnWorker> {
  try {
    if (typeof Worker === "function") {
      // In this form bundlers find the file.
      return openTrusted(
        () => new Worker(new URL("../worker-thread.js", import.meta.url), { type: "module" }),
      );
    }
    if (inNode()) {
      const file = "../worker-thread.js"; // a variable: bundlers need not copy it for Node
      const { Worker: Thread } = await threads();
      return new Thread(new URL(file, import.meta.url)) as unknown as OwnWorker;
    }
  } catch (cause) {
    throw unavailable(`the worker could not be opened (${said(cause)}); ${OWN}`, cause);
  }
  throw unavailable(
    'there is no Worker here; import from "tinyloom" instead, or call connect() from a page or a ' +
      "dedicated worker",
  );
}

/** Opens the worker from a copy of its file that is JavaScript of the page's bundle. */
export async function openCopy(): Promise<OwnWorker> {
  const { default: text } = await import("./text.js");
  const url = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
  // The address is not revoked: browsers read it at a time of their own, and the text is small.
  return openTrusted(() => new Worker(url, { type: "module" }));
}

/** Notes what the page's content-security policy refuses, until `stop` is called. */
export function watchPolicy(): { refused(): string | undefined; stop(): void } {
  let directive: string | undefined;
  const listener = (event: Event) => {
    const { effectiveDirective } = event as SecurityPolicyViolationEvent;
    if (/worker|script|trusted/.test(effectiveDirective)) directive = effectiveDirective;
  };
  const type = "securitypolicyviolation";
  globalThis.addEventListener?.(type, listener);
  return {
    refused: () => directive,
    stop: () => globalThis.removeEventListener?.(type, listener),
  };
}

/**
 * Why neither the worker's file nor its copy could be opened.
 *
 * @param directive - of the page's policy, that refused one of them.
 */
export function bothFailed(
  file: unknown,
  copy: unknown,
  directive: string | undefined,
): TinyloomError {
  const reasons = `${first(file)}; its copy in JavaScript: ${first(copy)}`;
  if (directive === undefined) {
    return unavailable(`no worker could be opened: ${reasons}; ${OWN}`, copy);
  }
  const cure = directive.includes("trusted")
    ? "add tinyloom to its trusted-types directive"
    : "serve tinyloom's worker-thread.js from an origin that its worker-src directive names, or add blob: there";
  return new TinyloomError(
    "content-security",
    `the page's content-security policy refuses the worker by its directive ${directive} (${reasons}); ` +
      `${cure}; or ${OWN}`,
    { cause: copy },
  );
}

const said = (thrown: unknown) => (thrown instanceof Error ? thrown.message : String(thrown));

/** An error's message without its advice. */
const first = (thrown: unknown) => said(thrown).split(`; ${OWN}`)[0];

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
