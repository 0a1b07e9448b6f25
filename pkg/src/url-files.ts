/** Checkpoint files by their URLs. Over HTTP: headers by `Range`, tensors as they arrive. */

import { fileUrl } from "./addresses.js";
import { findOnDisk } from "./disk-files.js";
import { TinyloomError, throwIfAborted, toError } from "./error.js";
import { blobPart, corrupt, type FilePart } from "./file-part.js";
import { cacheFolder, fileSystem, inNode, processId } from "./node.js";
import { show } from "./options.js";
import { type LoadOptions, type LongOptions, report } from "./progress.js";

/** Bytes of a file that are asked for first: most headers are shorter. */
const FIRST = 128 << 10;

/**
 * Asks for a file's first bytes, and so for its size; undefined where there is none.
 *
 * @param most - bytes beyond which the file will be refused anyway.
 */
export async function findFile(
  name: string,
  url: URL,
  options: LoadOptions,
  most = Number.POSITIVE_INFINITY,
): Promise<FilePart | undefined> {
  if (url.protocol === "file:" && inNode()) return findOnDisk(name, url);
  return fetched(url, options.signal, async () => {
    if (options.cache && typeof caches === "object") return kept(name, url, options);
    if (options.cache && inNode()) return keptOnDisk(name, url, options);
    let response = await ask(url, options, 0, FIRST);
    if (response.status === 416 && rangeOf(response)?.total === 0) {
      void response.body?.cancel();
      return blobPart(name, url.href, new Blob());
    }
    let range = response.status === 206 ? rangeOf(response) : undefined;
    if (response.status === 206 && range?.begin !== 0) {
      // A server of another origin that does not expose Content-Range: the size is unknown.
      void response.body?.cancel();
      response = await ask(url, options);
      range = undefined;
    }
    if (!isThere(url, response)) return undefined;
    if (range) {
      // Read at once: a body left open would hold one of the few connections to the server.
      const first = new Uint8Array(await response.arrayBuffer());
      return new UrlFile(name, url, range.total, options, first);
    }
    // With a content encoding, the stated length is not that of the bytes that arrive.
    const length = response.headers.get("content-length");
    if (length === null || response.headers.has("content-encoding")) {
      return blobPart(name, url.href, await download(name, url, response, options, most));
    }
    return new UrlFile(name, url, Number(length), options, opened(url, response, 0));
  });
}

/** A file of the browser's cache storage, which is put there first where it is not. */
async function kept(name: string, url: URL, options: LoadOptions): Promise<FilePart | undefined> {
  const storage = await caches.open("tinyloom");
  let answer = await storage.match(url);
  if (!answer) {
    const response = await ask(url, options);
    if (!isThere(url, response)) return undefined;
    const body = counted(name, url, response, lengthOf(response), options);
    // Of the headers only the type: a stated length or encoding is that of the transfer.
    const type = response.headers.get("content-type") ?? "application/octet-stream";
    try {
      await storage.put(url, new Response(body, { headers: { "content-type": type } }));
    } catch (cause) {
      if ((cause as { name?: unknown } | null)?.name !== "QuotaExceededError") throw cause;
      const message = `the browser's cache has no room for ${url.href}; leave cache out, or delete other files`;
      throw new TinyloomError("storage-full", message, { cause });
    }
    answer = await storage.match(url);
  }
  return answer && blobPart(name, url.href, await answer.blob());
}

/** The same in the user's folder of caches: the file is there when it is whole. */
async function keptOnDisk(
  name: string,
  url: URL,
  options: LoadOptions,
): Promise<FilePart | undefined> {
  const fs = await fileSystem();
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(url.href));
  const hex = Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, "0"));
  const folder = `${cacheFolder()}/files`;
  const path = `${folder}/${hex.join("").slice(0, 32)}-${name.replace(/[^\w.-]/g, "_")}`;
  const there = await findOnDisk(name, fileUrl(path));
  if (there) return there;
  const response = await ask(url, options);
  if (!isThere(url, response)) return undefined;
  const total = lengthOf(response);
  await fs.mkdir(folder, { recursive: true });
  // Two processes may load one file: each has a file of its own, and the last one stays.
  const own = `${path}.${processId()}-${Math.random().toString(36).slice(2)}`;
  try {
    const file = await fs.open(own, "w");
    try {
      let loaded = 0;
      for (const reader = counted(name, url, response, total, options).getReader(); ; ) {
        const { value, done } = await reader.read();
        if (done) break;
        await file.writeFile(value);
        loaded += value.length;
      }
      if (total > 0 && loaded !== total) {
        throw corrupt(
          `${url.href} ended at byte ${loaded} of ${total}: the connection broke; try again`,
        );
      }
    } finally {
      await file.close();
    }
    await fs.rename(own, path);
  } catch (cause) {
    await fs.rm(own, { force: true });
    throw cause;
  }
  return findOnDisk(name, fileUrl(path));
}

/** What to do where a server gives a file to some alone. A hub also says so of a repository that does not exist. */
const CLOSED =
  "check the name; if the repository is private, or its terms have to be accepted, send a token by the option fetch";

/** Whether the server has the file. An answer of another kind is refused, and none of them is left open. */
function isThere(url: URL, response: Response): boolean {
  if (response.ok) return true;
  void response.body?.cancel();
  if (response.status === 404 || response.status === 410) return false;
  const { status, statusText } = response;
  const cure = status === 401 || status === 403 ? `: ${CLOSED}` : "";
  throw corrupt(`${url.href} answered ${status} ${statusText}`.trimEnd() + cure);
}

/** Bytes that will arrive; 0 where the answer does not tell: with a content encoding the stated length is another. */
const lengthOf = ({ headers }: Response): number =>
  headers.has("content-encoding") ? 0 : Number(headers.get("content-length") ?? 0);

/**
 * The bytes of an answer, which are reported as they pass.
 *
 * @param most - bytes after which the stream ends.
 */
function counted(
  name: string,
  url: URL,
  response: Response,
  total: number,
  options: LongOptions,
  most = Number.POSITIVE_INFINITY,
): ReadableStream<Uint8Array> {
  let loaded = 0;
  const counter = new TransformStream<Uint8Array, Uint8Array>({
    transform(chunk, controller) {
      loaded += chunk.length;
      report(options, { loaded, total, stage: `download ${name}` });
      controller.enqueue(chunk);
      if (loaded > most) controller.terminate();
    },
  });
  return bodyOf(url, response).pipeThrough(counter);
}

/** The whole of a file whose size shows at its end, in a Blob, which a browser may keep on disk. */
async function download(
  name: string,
  url: URL,
  response: Response,
  options: LongOptions,
  most: number,
): Promise<Blob> {
  return response.body
    ? new Response(counted(name, url, response, 0, options, most)).blob()
    : new Blob();
}

/** A file whose size is known. */
class UrlFile implements FilePart {
  readonly name: string;
  readonly place: string;
  readonly remote = true;
  readonly size: number;
  readonly #url: URL;
  /** Whether the server answers to Range. */
  readonly #ranges: boolean;
  readonly #first: Uint8Array;
  readonly #options: LoadOptions;
  #stream: Stream | undefined;
  /** Memory of pieces that were taken back: new memory for each one would cost a tenth of the time. */
  readonly #spare: ArrayBuffer[] = [];

  /** @param begun - the file's first bytes from a server that answers to Range, or its whole stream. */
  constructor(
    name: string,
    url: URL,
    size: number,
    options: LoadOptions,
    begun: Uint8Array | Stream,
  ) {
    [this.name, this.place, this.size] = [name, url.href, size];
    [this.#url, this.#options] = [url, options];
    this.#ranges = begun instanceof Uint8Array;
    this.#first = begun instanceof Uint8Array ? begun : new Uint8Array();
    this.#stream = begun instanceof Uint8Array ? undefined : begun;
  }

  read(begin: number, end: number): Promise<Uint8Array> {
    return fetched(this.#url, this.#options.signal, async () => {
      const here = this.#first.subarray(begin, end);
      let bytes = new Uint8Array(this.#memory(end - begin), 0, end - begin);
      bytes.set(here);
      for (let done = here.length; done < bytes.length; ) {
        const stream = await this.#at(begin + done);
        const read = await stream.read(bytes, done);
        bytes = read.bytes;
        if (read.done > done) {
          done = read.done;
          continue;
        }
        // The connection ended early: with Range, another goes on from there.
        this.rest();
        if (!this.#ranges || stream.from === begin + done) {
          throw corrupt(
            `${this.place} ended at byte ${begin + done} of ${this.size}: the connection broke, or ` +
              "the file is changing; try again",
          );
        }
      }
      return bytes;
    });
  }

  reuse({ buffer }: Uint8Array<ArrayBuffer>): void {
    this.#spare.push(buffer);
  }

  #memory(length: number): ArrayBuffer {
    const spare = this.#spare.pop();
    return spare && spare.byteLength >= length ? spare : new ArrayBuffer(length);
  }

  rest(): void {
    this.#stream?.cancel();
    this.#stream = undefined;
    this.#spare.length = 0;
  }

  /** The stream, at that byte of the file. */
  async #at(begin: number): Promise<Stream> {
    if (!this.#stream || this.#stream.at > begin || (this.#ranges && this.#stream.at < begin)) {
      this.rest();
      this.#stream = await this.#open(begin);
    }
    await this.#stream.skip(begin);
    return this.#stream;
  }

  async #open(begin: number): Promise<Stream> {
    const response = this.#ranges
      ? await ask(this.#url, this.#options, begin)
      : await ask(this.#url, this.#options);
    const range = rangeOf(response);
    const size = range ? range.total : Number(response.headers.get("content-length") ?? Number.NaN);
    const wrong = range ? range.begin !== begin : this.#ranges && response.status === 206;
    if (!response.ok || wrong || size !== this.size) {
      void response.body?.cancel();
      throw corrupt(
        `${this.place} answered ${response.status} with ${size} bytes where it had ${this.size}: ` +
          "the file is changing; try again",
      );
    }
    return opened(this.#url, response, range ? begin : 0);
  }
}

/** Bytes to leave out at a time. */
const SKIPPED = 1 << 16;

/** The bytes of an answer as they arrive. A body of bytes writes them where they are to lie; others give chunks. */
class Stream {
  readonly #reader: ReadableStreamBYOBReader | ReadableStreamDefaultReader<Uint8Array>;
  #chunk = new Uint8Array();
  /** The place in the file of the first byte, and of the next one. */
  readonly from: number;
  at: number;

  constructor(body: ReadableStream<Uint8Array>, from: number) {
    this.#reader = readerOf(body);
    [this.from, this.at] = [from, from];
  }

  /**
   * Fills bytes from the place `done` on, unless the stream ends before.
   *
   * @returns the bytes, which may have moved, and the place up to which they are filled.
   */
  async read(bytes: Uint8Array<ArrayBuffer>, done: number) {
    let [filled, to] = [bytes, done];
    while (to < filled.length) {
      const next = await this.#next(filled, to);
      filled = next.bytes;
      if (next.to === to) break;
      this.at += next.to - to;
      to = next.to;
    }
    return { bytes: filled, done: to };
  }

  async #next(bytes: Uint8Array<ArrayBuffer>, to: number) {
    const { length } = bytes;
    if (!(this.#reader instanceof ReadableStreamDefaultReader)) {
      const rest = new Uint8Array(bytes.buffer, to, length - to);
      const { value } = await this.#reader.read(rest, { min: rest.length });
      // Without a value the stream has failed or was cancelled, and the memory is gone.
      if (!value) return { bytes: new Uint8Array(length), to };
      return { bytes: new Uint8Array(value.buffer, 0, length), to: to + value.length };
    }
    while (this.#chunk.length === 0) {
      const { value, done } = await this.#reader.read();
      if (done) return { bytes, to };
      this.#chunk = value as Uint8Array<ArrayBuffer>;
    }
    const part = this.#chunk.subarray(0, length - to);
    bytes.set(part, to);
    this.#chunk = this.#chunk.subarray(part.length);
    return { bytes, to: to + part.length };
  }

  /** Leaves out the bytes before that place. */
  async skip(to: number): Promise<void> {
    while (this.at < to) {
      const before = this.at;
      await this.read(new Uint8Array(Math.min(SKIPPED, to - before)), 0);
      if (this.at === before) return;
    }
  }

  cancel(): void {
    this.#reader.cancel().catch(() => undefined);
  }
}

function readerOf(body: ReadableStream<Uint8Array>) {
  try {
    return body.getReader({ mode: "byob" });
  } catch {
    return body.getReader(); // no stream of bytes, as a caller's own fetch may give
  }
}

const opened = (url: URL, response: Response, from: number) =>
  new Stream(bodyOf(url, response), from);

function bodyOf(url: URL, { body }: Response): ReadableStream<Uint8Array> {
  if (!body) throw corrupt(`${url.href} answered without a body`);
  return body;
}

/** Asks for a file, or for its bytes from `begin` to before `end` or its own end. */
function ask(
  url: URL,
  { signal, fetch: own }: LoadOptions,
  begin?: number,
  end?: number,
): Promise<Response> {
  const headers: HeadersInit =
    begin === undefined ? {} : { range: `bytes=${begin}-${end === undefined ? "" : end - 1}` };
  const init = { headers, ...(signal ? { signal } : {}) };
  return own ? own(url.href, init) : fetch(url, init);
}

/** What part of a file an answer holds, if it is one: `bytes 0-99/1234`, or of no part `bytes *\/1234`. */
function rangeOf(response: Response): { begin: number; total: number } | undefined {
  const text = response.headers.get("content-range") ?? "";
  const found = /^bytes (?:(\d+)-\d+|\*)\/(\d+)$/.exec(text);
  return found ? { begin: Number(found[1] ?? 0), total: Number(found[2]) } : undefined;
}

/** Network work, whose failures name the URL. */
async function fetched<T>(
  url: URL,
  signal: AbortSignal | undefined,
  work: () => Promise<T>,
): Promise<T> {
  throwIfAborted(signal, "loading");
  try {
    return await work();
  } catch (cause) {
    throwIfAborted(signal, "loading");
    const error = toError(cause);
    if (error.code !== "internal") throw error;
    throw corrupt(`${url.href} could not be fetched: ${show(cause)}`, cause);
  }
}
