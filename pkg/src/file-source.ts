/** Where a checkpoint's files come from: a base URL, or an object of files. */

import { addressOf } from "./addresses.js";
import type { CheckpointFiles, FileContent, Source } from "./file-part.js";
import { blobPart, bytesPart, corrupt, type FilePart, isFile, readable } from "./file-part.js";
import { deferredPart, ggufPart } from "./lazy.js";
import { inspect, invalid, isA, object, show } from "./options.js";
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
    return ofGguf(where, { [name || NAMELESS]: source }, name || NAMELESS);
  }
  if (typeof source === "object" && source !== null) {
    if (Symbol.iterator in source || "getFileHandle" in source) return ofPicked(where, source);
    const names = Object.keys(source);
    // A promise, or another object without properties, has no files.
    if (names.length > 0 || object(source) === undefined)
      return ofFiles(where, source as CheckpointFiles);
  }
  throw noSource(where, source);
}

/** An object of files: a folder, or the one GGUF file in it. */
export function ofFiles(where: string, files: CheckpointFiles): Source {
  const names = Object.keys(files);
  const [gguf, another] = names.filter((name) => name.endsWith(".gguf"));
  return gguf === undefined || another !== undefined || names.includes("config.json")
    ? new ObjectSource(where, files)
    : ofGguf(where, files, gguf);
}

/** An error that says what a source may be. */
export const noSource = (where: string, source: unknown) =>
  invalid(
    `${where} takes a base URL, hf:OWNER/NAME, in Node a folder's path, an object of files such as { "config.json": … }, ` +
      `the files of a picked folder, or a GGUF file, not ${show(source)}`,
  );

/** What a file is called that has no name. */
const NAMELESS = "the given file";

const ofGguf = (where: string, files: CheckpointFiles, name: string): Source =>
  new GgufSource(new ObjectSource(where, files), name);

/** The folder that a URL names, or the GGUF file. */
function ofUrl(where: string, source: string | URL, options: LoadOptions): Source {
  const base = addressOf(where, source);
  const file = /[^/]*\.gguf$/.exec(base.pathname)?.[0];
  if (file) {
    base.pathname = base.pathname.slice(0, -file.length);
    return new GgufSource(new UrlFiles(base, options, source), file);
  }
  if (!base.pathname.endsWith("/")) base.pathname += "/";
  return new UrlFiles(base, options, source);
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

/** A list of files, or a folder's handle. What reads it is loaded with the first file. */
function ofPicked(where: string, source: object): Source {
  // An input that is emptied empties its list.
  const given = "getFileHandle" in source ? source : Array.from(source as ArrayLike<unknown>);
  let opened: Source | undefined;
  return {
    place: (name) => opened?.place(name) ?? name,
    names: () => opened?.names?.(),
    async find(name) {
      opened ??= (await deferredPart()).openPicked(where, source, given);
      return opened.find(name);
    },
  };
}

/** A folder on the web, or on Node's disk. What reads it is loaded with the first file. */
class UrlFiles implements Source {
  readonly #base: URL;
  readonly #options: LoadOptions;

  readonly asked: string | URL;

  constructor(base: URL, options: LoadOptions, asked: string | URL) {
    [this.#base, this.#options, this.asked] = [base, options, asked];
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
