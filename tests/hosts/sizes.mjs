// What an app pays for the package, measured with the esbuild of this project: docs/tested-hosts.md is held to it.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";
import { root } from "../../scripts/lib.mjs";

const dist = join(root, "pkg", "dist");
const gzipped = (bytes) => gzipSync(bytes).length;

/**
 * Gzipped bytes of the hosts' app, file by file: of the module's copy in JavaScript, and of all else.
 *
 * @returns `{ app, copy }`.
 */
export async function appSizes(minify) {
  const { outputFiles, metafile } = await build({
    entryPoints: [join(root, "tests/hosts/apps/shared/main.js")],
    bundle: true,
    minify,
    splitting: true,
    write: false,
    metafile: true,
    format: "esm",
    external: ["@huggingface/*"], // the hosts have none of them
    outdir: join(root, "target", "size"),
    absWorkingDir: root,
  });
  const sizes = { app: 0, copy: 0 };
  for (const { path, contents } of outputFiles) {
    const name = Object.keys(metafile.outputs).find((one) => join(root, one) === path);
    const used = Object.entries(metafile.outputs[name].inputs).filter(([, is]) => is.bytesInOutput);
    const inputs = used.map(([input]) => input);
    const copy = inputs.some((input) => input.endsWith("/packed.js"));
    // What is not minified keeps its comments with other bundlers, and loses them with esbuild.
    const plain = () => inputs.map((input) => readFileSync(join(root, input), "utf8")).join("\n");
    sizes[copy ? "copy" : "app"] += gzipped(minify ? contents : plain());
  }
  return sizes;
}

/** The files whose sizes the document's sentences tell, and the words before these. */
const TOLD = { "packed.js": "one file of", "worker-thread.js": "the worker's file of" };

const sentence = (words) => new RegExp(`${words} (\\d+) KB \\((\\d+) KB gzipped\\)`);

/** Kilobytes of a file of the built package, plain and gzipped. */
function fileSizes(name) {
  const bytes = readFileSync(join(dist, name));
  return [bytes.length / 1000, gzipped(bytes) / 1000];
}

/** What the document tells of files, beside what is: `[{ name, stand, are }]`. */
export const sizesTold = (text) =>
  Object.entries(TOLD).map(([name, words]) => ({
    name,
    stand: sentence(words).exec(text)?.slice(1).map(Number),
    are: fileSizes(name),
  }));

/** The document with the sizes of the files as they are. */
export function withSizes(text) {
  return Object.entries(TOLD).reduce((sum, [name, words]) => {
    const [plain, small] = fileSizes(name).map(Math.round);
    return sum.replace(sentence(words), `${words} ${plain} KB (${small} KB gzipped)`);
  }, text);
}

/** The document's table as objects, a key per column. */
export function rowsOf(text) {
  const [, table] = text.split(/<!-- table -->\n|<!-- end of table -->/);
  const [head, , ...lines] = table
    .trim()
    .split("\n")
    .map((line) => line.split("|").slice(1, -1));
  return lines.map((cells) =>
    Object.fromEntries(cells.map((cell, at) => [head[at].trim(), cell.trim()])),
  );
}
