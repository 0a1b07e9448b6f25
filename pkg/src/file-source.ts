/** Where a checkpoint's files come from: a base URL, or an object of files. */

import { addressOf, hubHint } from "./addresses.js";
import type { CheckpointFiles, FileContent, Source } from "./file-part.js";
import { blobPart, bytesPart, corrupt, type FilePart, isFile, readable } from "./file-part.js";
import { deferredPart, ggufPart } from "./lazy.js";
import { inspect, invalid, isA, show } from "./options.js";
import type { LoadOptions } from "./progress.js";
import { stored } from "./stored-runs.js";

/** The files of `fromPretrained` and `resume`. */
export function openSource(where: string, source: unknown, options: LoadOptions): Source {
  return inspect(where, () => opened(where, source, options));
}

function opened(where: string, source: unknown, options: LoadOptions): Source {
  const run = stored.find(source);
  if (run) return run.source();
  if (typeof source === "string" || source instanceof URL) return ofUrl(where, source, options);
  if (isContent(source)) {
    const name = source instanceof Blob ? (source as Partial<File>).name : undefined;
    return ofGguf(where, { [name || GGUF]: source }, name || GGUF);
  }
  if (typeof source === "object" && source !== null) {
    const names = Object.keys(source);
    const [gguf, another] = names.filter((name) => name.endsWith(".gguf"));
    const files = source as CheckpointFiles;
    if (gguf === undefined || another !== undefined || names.includes("config.json")) {
      return new ObjectSource(where, files);
    }
    return ofGguf(where, files, gguf);
  }
  throw invalid(
    `${where} takes a base URL, hf:OWNER/NAME, in Node also the path of a folder, an object of files such as { "config.json": …, ` +
      `"model.safetensors": … }, or a GGUF file, not ${show(source)}`,
  );
}

/** The name of a GGUF file that has none. */
const GGUF = "model.gguf";

const ofGguf = (where: string, files: CheckpointFiles, name: string): Source =>
  new GgufSource(new ObjectSource(where, files), name);

/** The folder that a URL names, or the GGUF file. */
function ofUrl(where: string, source: string | URL, options: LoadOptions): Source {
  const base = addressOf(where, source);
  const file = /[^/]*\.gguf$/.exec(base.pathname)?.[0];
  if (file) {
    base.pathname = base.pathname.slice(0, -file.length);
    return new GgufSource(new UrlFiles(base, options, ""), file);
  }
  if (!base.pathname.endsWith("/")) base.pathname += "/";
  return new UrlFiles(base, options, hubHint(source));
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

  names(): readonly string[] {
    return Object.keys(this.#files);
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

/** A GGUF file, which gives the files of a folder. What reads it is loaded with the first of them. */
class GgufSource implements Source {
  readonly #folder: Source;
  readonly #name: string;
  #opened: Promise<Source> | undefined;

  constructor(folder: Source, name: string) {
    [this.#folder, this.#name] = [folder, name];
  }

  place(name: string): string {
    return `${this.#folder.place(this.#name)} (${name})`;
  }

  async find(name: string): Promise<FilePart | undefined> {
    this.#opened ??= this.#open();
    return (await this.#opened).find(name);
  }

  async #open(): Promise<Source> {
    const { openGguf } = await ggufPart();
    const file = await this.#folder.find(this.#name);
    if (file) return openGguf(file);
    throw corrupt(`${this.#folder.place(this.#name)} is not there; look at its name`);
  }
}

/** A folder on the web, or on Node's disk. What reads it is loaded with the first file. */
class UrlFiles implements Source {
  readonly #base: URL;
  readonly #options: LoadOptions;

  /** What may have been meant, where a file is not there. */
  readonly hint: string;

  constructor(base: URL, options: LoadOptions, hint: string) {
    [this.#base, this.#options, this.hint] = [base, options, hint];
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
