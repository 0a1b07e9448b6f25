/** What a file is that is not what was asked for, told by its first bytes; loaded with what reads files. */

import { corrupt, type FilePart } from "./file-part.js";

/** Bytes that tell. */
const FIRST = 512;

/** What bytes are that a file begins with, and the cure. */
export interface Kind {
  readonly what: string;
  readonly cure: string;
}

const UNPACK = "unpack it, and give the files that are in it";
const PYTORCH =
  "in Python, AutoModelForCausalLM.from_pretrained(folder).save_pretrained(folder) writes safetensors";
const NOTE = "fetch the file with git lfs pull, or from the address of its download";
const WITH_CONFIG =
  'give its config.json too, as in { "config.json": …, "model.safetensors": … }, or all files of its folder';

/** Beginnings in Latin-1, a character for each byte. The first that fits counts. */
const BEGINNINGS: readonly (readonly [begin: string, what: string, cure: string])[] = [
  ["\x80\x02", "a file of PyTorch's", PYTORCH],
  ["PK\x03\x04", "a zip archive", UNPACK],
  ["PK\x05\x06", "an empty zip archive", UNPACK],
  ["\x1f\x8b", "compressed by gzip", UNPACK],
  ["\x28\xb5\x2f\xfd", "compressed by zstd", UNPACK],
  ["\xfd7zXZ", "compressed by xz", UNPACK],
  ["7z\xbc\xaf", "a 7z archive", UNPACK],
  ["GGUF", "a GGUF file", "give it alone, or under a name that ends in .gguf"],
  ["version https://git-lfs", "Git LFS's note of where the file is", NOTE],
];

/** What the bytes are; undefined where they do not tell. */
export function kindOf(head: Uint8Array): Kind | undefined {
  const first = Array.from(head.subarray(0, FIRST), (byte) => String.fromCharCode(byte));
  const text = first.join("");
  if (text.startsWith("\0\0\0{", 5)) return { what: "a safetensors file", cure: WITH_CONFIG };
  // What PyTorch saves is such an archive.
  if (text.startsWith("PK") && text.includes("data.pkl")) {
    return { what: "a file of PyTorch's", cure: PYTORCH };
  }
  const found = BEGINNINGS.find(([begin]) => text.startsWith(begin));
  if (found) return { what: found[1], cure: found[2] };
  const [letter = ""] = text.trimStart();
  if (letter === "<") {
    const cure = "look at the address: servers answer with a page for what is not there";
    return { what: "a web page", cure };
  }
  return letter === "{" || letter === "["
    ? { what: "JSON", cure: "give all files of its folder, with the weights among them" }
    : undefined;
}

/** Reads what a file is. */
export async function kindIn(file: FilePart): Promise<Kind | undefined> {
  const kind = kindOf(await file.read(0, Math.min(FIRST, file.size)));
  file.rest?.();
  return kind;
}

/** An error that says what the file is, and that it is no `wanted`; undefined where its bytes do not tell. */
export async function anotherKind(file: FilePart, wanted: string): Promise<Error | undefined> {
  const kind = await kindIn(file);
  if (!kind || kind.what.endsWith(wanted)) return undefined;
  return corrupt(`${file.place} is ${kind.what}, and no ${wanted}: ${kind.cure}`);
}
