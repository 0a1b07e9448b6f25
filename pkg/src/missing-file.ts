/** What may have been meant where a file is not there; loaded with what reads files. */

import { kindIn } from "./file-kind.js";
import type { Source } from "./file-part.js";

/** Names of given files that are listed at most. */
const LISTED = 6;

/**
 * What to add to the message that a file is missing: the repository that a name may stand for, or what was given instead.
 *
 * @returns empty, or words that begin with a semicolon.
 */
export async function hintOf(source: Source, name: string): Promise<string> {
  const { asked } = source;
  const hint = asked === undefined ? await ofFiles(source, name) : ofAddress(String(asked));
  return hint && `; ${hint}`;
}

function ofAddress(asked: string): string {
  const file = /[^/]+\.(safetensors|bin|pt|pth|ckpt|onnx|json|zip|tar|gz)$/i.exec(asked)?.[0];
  if (file) return `give the folder that ${file} is in, and not a file of it`;
  if (/^[\w-][\w.-]*\/[\w-][\w.-]*$/.test(asked)) {
    return `a repository of the Hugging Face hub is hf:${asked}`;
  }
  return /^[\w-][\w.-]*$/.test(asked)
    ? `a repository of the Hugging Face hub has an owner, as in hf:OWNER/${asked}`
    : "";
}

async function ofFiles(source: Source, name: string): Promise<string> {
  const names = source.names?.();
  if (!names) return "";
  const [first, ...others] = names;
  if (first === undefined) return "what was given has no file";
  const deeper = names.filter((one) => one.endsWith(`/${name}`));
  if (deeper.length > 0) {
    return `${listed(deeper)} is there: give the files of that one folder`;
  }
  const only = others.length === 0 ? await source.find(first) : undefined;
  const kind = only && (await kindIn(only));
  return kind ? `${first} is ${kind.what}: ${kind.cure}` : `what was given is ${listed(names)}`;
}

function listed(names: readonly string[]): string {
  const more = names.length - LISTED;
  return names.slice(0, LISTED).join(", ") + (more > 0 ? ` and ${more} more` : "");
}
