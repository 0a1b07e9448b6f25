/** Where a checkpoint's files come from: a base URL, or an object of files. */

import type { CheckpointFiles, FileContent, Source } from "./file-part.js";
import { blobPart, bytesPart, corrupt, type FilePart, isFile, readable } from "./file-part.js";
import { deferredPart } from "./lazy.js";
import { inspect, invalid, isA, show } from "./options.js";
import { wholeUrl } from "./page-address.js";
import type { LoadOptions } from "./progress.js";
import { stored } from "./stored-runs.js";

/** The files of `fromPretrained` and `resume`. */
export function openSource(where: string, source: unknown, options: LoadOptions): Source {
  return inspect(where, () => opened(where, source, options));
}

function opened(where: string, source: unknown, options: LoadOptions): Source {
  const run = stored.find(source);
  if (run) return run.source();
  if (typeof source === "string" || source instanceof URL) {
    return new UrlFiles(baseUrl(where, source), options);
  }
  if (typeof source === "object" && source !== null && !isContent(source)) {
    return new ObjectSource(where, source as CheckpointFiles);
  }
  throw invalid(
    `${where} takes a base URL (in Node also of a folder, file:…), or an object of files such as { "config.json": …, ` +
      `"model.safetensors": … }, not ${show(source)}`,
  );
}

/** The folder that a URL names. */
function baseUrl(where: string, source: string | URL): URL {
  const base = wholeUrl(where, source, "; or give an object of files");
  if (!base.pathname.endsWith("/")) base.pathname += "/";
  return base;
}

function isContent(value: unknown): value is FileContent {
  return (
    value instanceof Blob ||
    value instanceof ArrayBuffer ||
    value instanceof Uint8Array ||
    isFile(value)
  );
}

class ObjectSource implements Source {
  readonly #where: string;
  readonly #files: CheckpointFiles;

  constructor(where: string, files: CheckpointFiles) {
    this.#where = where;
    this.#files = files;
  }

  place(name: string): string {
    return name;
  }

  async find(name: string): Promise<FilePart | undefined> {
    const content = inspect(`${this.#where}: "${name}"`, () => this.#content(name));
    if (content === undefined) return undefined;
    if (isFile(content)) {
      const file: unknown = await readable(name, () => content.getFile());
      if (isA(file, Blob)) return blobPart(name, name, file);
      throw corrupt(`${name} is a handle that gave ${show(file)}, and no File; give another`);
    }
    if (content instanceof Blob) return blobPart(name, name, content);
    return readable(name, () => bytesPart(name, content));
  }

  #content(name: string): FileContent | undefined {
    const content: unknown = Object.hasOwn(this.#files, name) ? this.#files[name] : undefined;
    if (content === undefined || isContent(content)) return content;
    throw invalid(
      `${this.#where}: "${name}" is ${show(content)}; give a Blob, File, file handle, ArrayBuffer or Uint8Array`,
    );
  }
}

/** A folder on the web, or on Node's disk. What reads it is loaded with the first file. */
class UrlFiles implements Source {
  readonly #base: URL;
  readonly #options: LoadOptions;

  constructor(base: URL, options: LoadOptions) {
    this.#base = base;
    this.#options = options;
  }

  place(name: string): string {
    return this.#url(name).href;
  }

  #url(name: string): URL {
    const url = new URL(this.#base);
    url.pathname += name;
    return url;
  }

  async find(name: string, most?: number): Promise<FilePart | undefined> {
    const { findFile } = await deferredPart();
    return findFile(name, this.#url(name), this.#options, most);
  }
}
