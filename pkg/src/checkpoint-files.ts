/** Files that a checkpoint needs, by their names. */

import { type ErrorCode, TinyloomError } from "./error.js";
import type { Source } from "./file-part.js";
import { corrupt, type FilePart } from "./file-part.js";
import { jsonIn } from "./json-file.js";
import { hintOf } from "./missing-file.js";
import { show } from "./options.js";

/** Bytes of a trainer's state at most. */
export const STATE_BYTES = 1 << 20;
/** Bytes of an index of shards at most: a hundred thousand tensors take ten million. */
const INDEX_BYTES = 16 << 20;

/** The file, or an error that names it. */
export async function required(source: Source, name: string, most?: number): Promise<FilePart> {
  const file = await source.find(name, most);
  if (!file) {
    const hint = await hintOf(source, name);
    throw corrupt(`${source.place(name)} is missing; a checkpoint needs it${hint}`);
  }
  return file;
}

/** The text of a small file, which a checkpoint needs; a longer one than `most` bytes is refused unread. */
export async function readText(
  source: Source,
  name: string,
  most: number,
  code?: ErrorCode,
): Promise<string> {
  return textOf(await required(source, name, most), most, code);
}

/** The text of a small file that need not be there. */
export async function optionalText(
  source: Source,
  name: string,
  most: number,
  code?: ErrorCode,
): Promise<string | undefined> {
  const file = await source.find(name, most);
  return file && textOf(file, most, code);
}

async function textOf(
  file: FilePart,
  most: number,
  code: ErrorCode = "invalid-checkpoint",
): Promise<string> {
  if (file.size > most) {
    file.rest?.();
    throw new TinyloomError(
      code,
      `${file.place} has ${file.size} bytes, and at most ${most} are read; this is another file`,
    );
  }
  // A copy: a decoder takes no shared memory.
  const bytes = Uint8Array.from(await file.read(0, file.size));
  file.rest?.();
  return new TextDecoder().decode(bytes);
}

/** The weight files: one, or the shards that an index names. */
export async function weightFiles(source: Source): Promise<FilePart[]> {
  const single = await source.find("model.safetensors");
  if (single) return [single];
  const index = await source.find("model.safetensors.index.json", INDEX_BYTES);
  if (!index) {
    const [one, other] = ["model.safetensors", "model.safetensors.index.json"] as const;
    throw corrupt(
      `there is neither ${source.place(one)} nor ${source.place(other)}; a checkpoint needs one of them`,
    );
  }
  const names = shardNames(index.place, await textOf(index, INDEX_BYTES));
  const files: FilePart[] = [];
  for (const name of names) {
    const file = await required(source, name);
    file.rest?.(); // browsers open few connections to a server at a time
    files.push(file);
  }
  return files;
}

/** Names of the shards in an index, checked: they come from outside and become part of a URL. */
function shardNames(place: string, text: string): string[] {
  const index = jsonIn(place, text, "invalid-checkpoint") as { weight_map?: unknown } | null;
  const map = index?.weight_map;
  if (typeof map !== "object" || map === null || Array.isArray(map)) {
    throw corrupt(`${place} has no "weight_map" object of tensor to file names`);
  }
  const names = new Set<string>();
  for (const [tensor, name] of Object.entries(map)) {
    if (typeof name !== "string" || !/^[\w.-]+\.safetensors$/.test(name)) {
      throw corrupt(
        `${place} maps ${tensor} to ${show(name)}; ` +
          "a shard is a plain file name that ends in .safetensors",
      );
    }
    names.add(name);
  }
  if (names.size === 0) throw corrupt(`${place} names no shard`);
  return [...names].sort();
}
