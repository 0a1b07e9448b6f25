/** What a visitor drops or picks: a run that was exported, or a folder of Hugging Face's. */
import { type Model, TinyloomError } from "tinyloom/worker";
import type { Lab } from "./lab.ts";
import type { RunStore } from "./run-store.ts";

/** Files by their names, and what they are called together. */
export interface Folder {
  name: string;
  files: { readonly [name: string]: File };
}

const withoutEnding = (name: string) => name.replace(/\.[^.]+$/, "");

export function folderOf(files: readonly File[], name?: string): Folder {
  const [first] = files;
  const own = files.length === 1 && first ? withoutEnding(first.name) : "imported model";
  return { name: name ?? own, files: Object.fromEntries(files.map((file) => [file.name, file])) };
}

/** The files of a drop. Of a folder those that lie in it, without further folders. */
export async function dropped({ items }: DataTransfer): Promise<Folder> {
  // All at once: after the first await the browser has forgotten the drop.
  const found = [...items].map((item) => item.webkitGetAsEntry() ?? item.getAsFile());
  const files: File[] = [];
  let name: string | undefined;
  for (const one of found) {
    if (one instanceof File) files.push(one);
    else if (one?.isFile) files.push(await fileOf(one as FileSystemFileEntry));
    else if (one?.isDirectory) {
      name = one.name;
      const entries = await entriesOf((one as FileSystemDirectoryEntry).createReader());
      for (const entry of entries) {
        if (entry.isFile) files.push(await fileOf(entry as FileSystemFileEntry));
      }
    }
  }
  return folderOf(files, name);
}

const fileOf = (entry: FileSystemFileEntry) =>
  new Promise<File>((done, fail) => entry.file(done, fail));

async function entriesOf(reader: FileSystemDirectoryReader): Promise<FileSystemEntry[]> {
  const all: FileSystemEntry[] = [];
  for (;;) {
    const some = await new Promise<FileSystemEntry[]>((done, fail) =>
      reader.readEntries(done, fail),
    );
    if (some.length === 0) return all;
    all.push(...some);
  }
}

/** What the files are. A single file of any other kind is a text to learn from. */
export function kindOf({ files }: Folder): "run" | "model" | "text" | "other" {
  const names = Object.keys(files);
  if (files["run.json"] || (names.length === 1 && /\.zip$/i.test(names[0]!))) return "run";
  if (files["config.json"]) return "model";
  return names.length === 1 ? "text" : "other";
}

/** Keeps an exported run: its zip, or the files of it. Gives its name here. */
export async function importRun(store: RunStore, { name, files }: Folder): Promise<string> {
  const described = files["run.json"];
  if (!described) return store.import(Object.values(files)[0]!, name);
  return store.import(files, nameIn(await described.text()) ?? name);
}

/** The name in a run.json. If that is damaged, the import says so. */
function nameIn(described: string): string | undefined {
  try {
    const { name } = JSON.parse(described);
    return typeof name === "string" ? name : undefined;
  } catch {
    return undefined;
  }
}

/** A model of Hugging Face's, with its tokenizer.json. */
export async function importModel(
  lab: Lab,
  { files }: Folder,
): Promise<{ model: Model; tokenizer: string | undefined }> {
  // First what can fail without a model on the GPU.
  const tokenizer = await files["tokenizer.json"]?.text();
  const model = await lab.Model.fromPretrained(lab.runtime, files);
  const { vocab_size: words = 0 } = model.config;
  if (tokenizer !== undefined || words === 256) return { model, tokenizer };
  await model.free();
  throw new TinyloomError(
    "invalid-options",
    `the folder has no tokenizer.json, and its model has ${words} tokens instead of the 256 of bytes; ` +
      "drop a folder with its tokenizer.json",
  );
}
