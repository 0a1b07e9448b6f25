/** What a text names as the place of files: an address, a repository of the Hugging Face hub, or a path of Node's. */

import { host, inNode } from "./node.js";
import { invalid, show } from "./options.js";
import { pageAddress, wholeUrl } from "./page-address.js";

const HUB = "https://huggingface.co";
/** Owner and name, a revision (branch, tag, commit or pull request), and a file. */
const REPOSITORY = /^hf:([\w.-]+\/[\w.-]+)(?:@(refs\/\w+\/[\w.-]+|[^/@]+))?\/*(.*)$/;

/** The whole address. */
export function addressOf(where: string, source: string | URL): URL {
  if (typeof source === "string") {
    if (/^hf:/i.test(source)) return ofHub(where, source);
    if (inNode() && pageAddress() === undefined && !/^[a-z][a-z+.-]+:/i.test(source)) {
      return fileUrl(source);
    }
  }
  return wholeUrl(where, source, "; or give an object of files");
}

function ofHub(where: string, source: string): URL {
  const [, repository, revision = "main", file = ""] = REPOSITORY.exec(source) ?? [];
  if (repository === undefined) {
    throw invalid(
      `${where}: ${show(source)} is no repository of the Hugging Face hub; that is hf:OWNER/NAME, ` +
        "hf:OWNER/NAME@REVISION, or with a file hf:OWNER/NAME/FILE.gguf",
    );
  }
  const path = file.split("/").map(encodeURIComponent).join("/");
  return new URL(`${HUB}/${repository}/resolve/${encodeURIComponent(revision)}/${path}`);
}

/** The `file:` URL of a path, as Node's `pathToFileURL` makes it. */
export function fileUrl(path: string): URL {
  const windows = host()?.platform === "win32";
  const url = (text: string) => {
    const parts = (windows ? text.replaceAll("\\", "/") : text).split("/");
    const [drive = ""] = windows ? (/^[a-z]:$/i.exec(parts[0] as string) ?? []) : [];
    if (drive) parts.shift();
    const rest = parts.map(encodeURIComponent).join("/");
    return drive ? `/${drive}/${rest}` : rest;
  };
  const own = url(path);
  const base = own.startsWith("/") ? "" : `${url(host()?.cwd?.() ?? "/")}/`;
  return new URL(`file://${base}${own}`);
}
