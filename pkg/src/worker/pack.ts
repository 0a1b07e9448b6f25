/** The page's values on their way to the worker. */

import { inNode } from "../node.js";
import { abortSignal, copied, invalid, show } from "../options.js";
import { byPath } from "../picked-files.js";
import * as Comlink from "./comlink.js";
import { type MirrorCalls, mirrorState } from "./mirror.js";
import {
  isGpuObject,
  isPlain,
  isPlatform,
  localName,
  replaceDeep,
  UNUSED,
  WIRE,
  type Wire,
  wholeBuffers,
} from "./wire.js";

const given = new WeakSet<object>();

/** What to do with what no message carries. */
const OWN = "make the object in a worker of your own and give that to connect({ worker })";

/**
 * Lets the next call take these arrays instead of copying them: they are empty afterwards. It costs no time
 * however large they are.
 *
 * @param value - an array or `ArrayBuffer`, or an object of them, such as checkpoint files.
 * @returns the same value.
 * @throws {@link TinyloomError} `invalid-options` where it is no object; of an array that is empty because it was given
 *   away before, at the call that gets it.
 *
 * @example
 * ```ts
 * const dataset = await Dataset.fromTokens(transfer(tokens));
 * ```
 */
export function transfer<T extends object>(value: T): T {
  if (typeof value !== "object" || value === null) {
    throw invalid(
      `transfer takes an array, an ArrayBuffer, or an object of them, not ${show(value)}`,
    );
  }
  given.add(value);
  return value;
}

let lastSignal = 0;

/** The arguments of one call, with stand-ins for what cannot be cloned. */
export class PackedCall {
  readonly values: unknown[];
  /** Settles when the values are complete, where they have to be read first. */
  readonly ready: Promise<unknown> | undefined;
  readonly #connection: MirrorCalls;
  readonly #where: string;
  readonly #abort: (id: number, reason: unknown) => void;
  readonly #cleanup: (() => void)[] = [];
  readonly #reading: Promise<void>[] = [];
  readonly #writing: Promise<void>[] = [];
  readonly #unwritten: Promise<void>[] = [];
  readonly #transfers = new Set<Transferable>();
  /** The number of the argument that is packed. */
  #argument = 0;

  /**
   * @param where - the call, as the user wrote it.
   * @param abort - called when the signal of that number has fired.
   */
  constructor(
    connection: MirrorCalls,
    where: string,
    values: unknown[],
    abort: (id: number, reason: unknown) => void,
  ) {
    this.#connection = connection;
    this.#where = where;
    this.#abort = abort;
    this.values = [];
    try {
      this.values = values.map((one) => {
        this.#argument += 1;
        return replaceDeep(one, (value, name) => this.#replace(value, name));
      });
    } catch (error) {
      this.ended();
      throw (error as { code?: unknown }).code === undefined
        ? invalid(`${where}: an option's getter threw ${show(error)}`, "invalid-options", error)
        : error;
    }
    const move = () => void Comlink.transfer(this.values, [...this.#transfers]);
    if (this.#reading.length > 0) this.ready = Promise.all(this.#reading).then(move);
    else move();
  }

  /** Settles when what the call wrote to the page's streams has arrived there. */
  async written(): Promise<void> {
    await Promise.all(this.#writing);
  }

  /** Settles when the page's streams that nothing was written to are unlocked. */
  async left(): Promise<void> {
    await Promise.all(this.#unwritten);
  }

  /** The call is over: signals are not listened to any more. */
  ended(): void {
    for (const clean of this.#cleanup) clean();
  }

  #replace(value: object, name: string): unknown {
    // A message would share it with the worker, which reads it later.
    if (ArrayBuffer.isView(value) && isOf(["SharedArrayBuffer"], value.buffer)) {
      return copied(value);
    }
    if (isEmptied(value)) throw this.#emptied(name);
    if (given.delete(value)) for (const buffer of wholeBuffers(value)) this.#transfers.add(buffer);
    if (typeof value === "function" && name === "fetch") {
      throw this.#refuse(
        value,
        "its answers cannot follow it, so the worker asks for files itself; load the files here and give them by " +
          `their names, or ${OWN}`,
      );
    }
    if (typeof value === "function") return this.#function(value as Callable, name);
    const state = mirrorState(value);
    if (state) {
      if (state.connection === this.#connection) return { [WIRE]: "object", id: state.id };
      throw this.#refuse(value, "it belongs to another connection; use one connect() for both");
    }
    if (abortSignal(value) === undefined) return this.#signal(value as AbortSignal);
    const local = localName(value);
    if (local) return { [WIRE]: "local", name: local };
    if (value instanceof URL) return { [WIRE]: "url", href: value.href };
    if (typeof Response === "function" && value instanceof Response) return this.#response(value);
    if (isOf(["WritableStream"], value)) return this.#writable(value as WritableStream);
    if (isOf(["ReadableStream", "TransformStream", "MessagePort"], value)) {
      this.#transfers.add(value as Transferable);
      return value;
    }
    if (isOf(["Blob"], value)) this.#expectSent(value);
    if (isGpuObject(value)) {
      throw this.#refuse(value, "GPU objects stay on their side; the worker uses its own");
    }
    // A message carries no paths of files.
    const listed = Array.isArray(value) || isOf(["FileList"], value);
    if (listed && (value as FileList)[0]?.webkitRelativePath) return byPath(value);
    if (isOf(["Promise"], value)) throw this.#refuse(value, "no message has one");
    if (name === "tokenizer" && isPlain(value) && "decoder" in value) {
      throw this.#refuse(
        value,
        `its functions stay here; give a tokenizer that connect() gave, or ${OWN}`,
      );
    }
    if (Array.isArray(value) || isPlain(value) || isPlatform(value)) return undefined;
    throw this.#refuse(
      value,
      `instances of classes stay on their side, except those that connect() gave; pass plain data, or ${OWN}`,
    );
  }

  #refuse(value: unknown, why: string): Error {
    return invalid(`${this.#where}: ${show(value)} cannot go to the worker: ${why}`);
  }

  /** Of the Blobs of Node no message carries one that `fs.openAsBlob` made of a file. */
  #expectSent(blob: object): void {
    if (!inNode()) return;
    try {
      structuredClone(blob);
    } catch {
      throw this.#refuse(
        blob,
        "it is a file of fs.openAsBlob; give pathToFileURL(file) of node:url where a URL is taken, or " +
          "new Blob([bytes]) with the bytes of readFile",
      );
    }
  }

  /** No message can carry it, and in Node the call would never end. */
  #emptied(name: string): Error {
    const part = name ? `${name} of ` : "";
    return invalid(
      `${this.#where}: ${part}argument ${this.#argument} was emptied before, as by transfer(); give an array that ` +
        "still has its content",
    );
  }

  #signal(signal: AbortSignal): Wire {
    const id = ++lastSignal;
    const { aborted } = signal;
    if (!aborted) {
      const listener = () => this.#abort(id, cloneable(signal.reason));
      signal.addEventListener("abort", listener);
      this.#cleanup.push(() => {
        try {
          signal.removeEventListener("abort", listener);
        } catch {} // of a signal of the caller's own; the call's result counts
      });
    }
    return {
      [WIRE]: "signal",
      id,
      aborted,
      reason: aborted ? cloneable(signal.reason) : undefined,
    };
  }

  /** The worker's calls arrive here one by one, and wait for what the function gives. */
  #function(work: Callable, name: string): Wire {
    const handler = Comlink.transferHandlers.get("proxy") as Comlink.TransferHandler<
      Callable,
      Transferable
    >;
    const connection = this.#connection;
    const [port, ports] = handler.serialize((values) => {
      const result = work(...(connection.unpack(values) as unknown[]));
      return TOLD.test(name) ? settled(result) : this.#given(result);
    });
    for (const one of ports) this.#transfers.add(one);
    return { [WIRE]: "function", port, name };
  }

  /** What a function gives, unless it holds a GPU object: the message with it would fail without its name. */
  async #given(result: unknown): Promise<unknown> {
    const given = await result;
    const parts: unknown[] = typeof given === "object" && given ? Object.values(given) : [];
    const one = ArrayBuffer.isView(given) ? undefined : parts.find(isGpu);
    if (one) throw this.#refuse(one, "GPU objects stay on their side; give its numbers");
    return given;
  }

  /** A stream that is moved ends there before its last bytes are here, so one that is piped here moves. */
  #writable(stream: WritableStream): WritableStream {
    let begin = () => {};
    const begun = new Promise<void>((resolve) => {
      begin = resolve;
    });
    const { readable, writable } = new TransformStream({
      transform(bytes, to) {
        begin();
        to.enqueue(bytes);
      },
    });
    const writing = readable.pipeTo(stream, { preventAbort: true }).catch(async (error) => {
      if (error === UNUSED) return;
      await stream.abort(error).catch(() => undefined);
      throw error;
    });
    writing.catch(() => undefined).then(begin); // the worker's writing fails with it
    this.#unwritten.push(begun);
    this.#writing.push(writing);
    this.#transfers.add(writable as unknown as Transferable);
    return writable;
  }

  #response(response: Response): Wire {
    const wire: Wire = { [WIRE]: "response", body: undefined };
    if (!response.ok) {
      throw this.#refuse(response, `the server answered ${response.status} ${response.statusText}`);
    }
    const read = async () => {
      const body = await response.arrayBuffer();
      wire.body = body;
      this.#transfers.add(body);
    };
    this.#reading.push(read());
    return wire;
  }
}

type Callable = (...values: unknown[]) => unknown;

const isGpu = (value: unknown): boolean =>
  typeof value === "object" && value !== null && isGpuObject(value);

/** Names of callbacks that only report, such as `onProgress`. Their results are ignored. */
const TOLD = /^on[A-Z]/;

/** The end of what a function began, without what it gives: that may be what no message can carry. */
async function settled(result: unknown): Promise<void> {
  await result;
}

/** Whether it is an array or a buffer that was moved to another place. */
function isEmptied(value: object): boolean {
  const buffer = ArrayBuffer.isView(value) ? value.buffer : value;
  if (!(buffer instanceof ArrayBuffer)) return false;
  try {
    new Uint8Array(buffer); // no browser from before 2023 has `detached`
    return false;
  } catch {
    return true;
  }
}

function isOf(names: readonly string[], value: object): boolean {
  return names.includes(value.constructor?.name ?? "") && isPlatform(value);
}

/** A reason as the worker can have it. */
function cloneable(reason: unknown): unknown {
  try {
    return structuredClone(reason);
  } catch {
    return show(reason);
  }
}
