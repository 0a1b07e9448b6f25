// The code blocks of Markdown documents, for whoever runs them.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "./lib.mjs";

const FENCE = /^```(\w*)([^\n]*)\n([\s\S]*?)^```$/gm;
const MARK = /<!-- not run: ([^>]+?) -->\s*$/;

/**
 * The fenced code blocks of a document, in order.
 *
 * A comment `<!-- not run: REASON -->` right before a block says why no test runs it.
 *
 * @returns `{ path, line, language, inNode, code, reason }` per block. `inNode` is true for blocks marked
 *   `js node`; `reason` is undefined where a block runs.
 */
export function codeBlocks(path) {
  const text = readFileSync(join(root, path), "utf8");
  return [...text.matchAll(FENCE)].map((match) => ({
    path,
    line: text.slice(0, match.index).split("\n").length,
    language: match[1],
    inNode: match[2].trim() === "node",
    code: match[3],
    reason: MARK.exec(text.slice(0, match.index))?.[1],
  }));
}
