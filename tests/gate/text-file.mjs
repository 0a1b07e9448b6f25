// Files of lines that several runs write.
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";

/** What a file has; nothing where there is none. */
export const readText = (path) => (existsSync(path) ? readFileSync(path, "utf8") : "");

/** Gives a file another text, at once: whoever reads it meanwhile finds the one or the other. */
export function replaceText(path, text) {
  if (readText(path) === text) return;
  mkdirSync(dirname(path), { recursive: true });
  const fresh = `${path}.${process.pid}`;
  writeFileSync(fresh, text);
  renameSync(fresh, path);
}
