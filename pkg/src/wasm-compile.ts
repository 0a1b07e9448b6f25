/** Where the wasm module comes from, and what to do where it does not come. */

import { type ErrorCode, TinyloomError } from "./error.js";
import { fileSystem, inNode } from "./node.js";
import { packedModule } from "./packed-module.js";
import { wholeUrl } from "./page-address.js";

/** What `Runtime.create` takes as `wasm`. */
export type ModuleSource = URL | string | Response | BufferSource | WebAssembly.Module;

type Bytes = Uint8Array<ArrayBuffer>;

/** The module as base64 of gzip, where `tinyloom/inline` brought it. */
let carried: string | undefined;

/** Makes `packed` the module that is compiled where the caller gives none. */
export function carry(packed: string): void {
  carried = packed;
}

/**
 * Compiles the module: the given one, or the one that `tinyloom/inline` carries, or the file beside
 * this module. Where that file does not answer, its bytes are imported as JavaScript.
 *
 * @throws {@link TinyloomError} `content-security`, `module-unavailable`, `invalid-options`.
 */
export async function compileModule(source: ModuleSource | undefined): Promise<WebAssembly.Module> {
  const from = nameOf(source);
  try {
    if (source !== undefined) return own(await compile(source));
    if (carried !== undefined) return await WebAssembly.compile(await unpack(carried));
    return await ownFile();
  } catch (cause) {
    if (await refusedByPolicy()) throw policyError(cause);
    throw loadError(source, from, cause);
  }
}

/** The file did not come: nothing, an error or a page of HTML answered. */
class NotThere extends Error {}

/** The module's own file, or its bytes as JavaScript where the file does not answer. */
async function ownFile(): Promise<WebAssembly.Module> {
  try {
    return own(await compile(new URL("./tinyloom_bg.wasm", import.meta.url)));
  } catch (fileError) {
    if (await refusedByPolicy()) throw fileError;
    let packed: string;
    try {
      packed = await packedModule();
    } catch (cause) {
      const reason = `${said(fileError)}; its copy in JavaScript did not load either: ${said(cause)}`;
      throw new NotThere(reason, { cause: fileError });
    }
    return WebAssembly.compile(await unpack(packed));
  }
}

async function compile(source: ModuleSource): Promise<WebAssembly.Module> {
  if (source instanceof WebAssembly.Module) return source;
  if (typeof source === "string") return compile(wholeUrl("Runtime.create: wasm", source));
  if (source instanceof URL) {
    // Node's fetch does not read file: URLs, so its file system does.
    if (source.protocol === "file:" && inNode()) {
      const { readFile } = await fileSystem();
      return compileBytes((await readFile(source).catch(notThere)) as Bytes);
    }
    return compileAnswer(await fetch(source).catch(notThere));
  }
  return source instanceof Response ? compileAnswer(source) : compileBytes(source);
}

function notThere(cause: unknown): never {
  throw new NotThere(said(cause), { cause });
}

const said = (thrown: unknown) => (thrown instanceof Error ? thrown.message : String(thrown));

/** Compiles while it downloads where the server names the type: browsers cache only such code. */
async function compileAnswer(answer: Response): Promise<WebAssembly.Module> {
  if (!answer.ok) throw new NotThere(`the server answered ${answer.status} ${answer.statusText}`);
  const type = answer.headers.get("content-type")?.split(";")[0]?.trim().toLowerCase();
  if (type === "application/wasm" && typeof WebAssembly.compileStreaming === "function") {
    return WebAssembly.compileStreaming(answer);
  }
  return compileBytes(await answer.arrayBuffer());
}

function compileBytes(bytes: BufferSource): Promise<WebAssembly.Module> {
  const view = ArrayBuffer.isView(bytes)
    ? new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength)
    : new Uint8Array(bytes);
  const start = new TextDecoder().decode(view.subarray(0, 64)).trimStart();
  if (/^<(!doctype|html|head|!--)/i.test(start)) {
    throw new NotThere("HTML came instead of wasm, the page that a server gives for unknown paths");
  }
  return WebAssembly.compile(bytes);
}

/** The module, held to be tinyloom's: wasm-bindgen would keep another for good. */
function own(module: WebAssembly.Module): WebAssembly.Module {
  const exported = WebAssembly.Module.exports(module).map(({ name }) => name);
  const missing = ["memory", "rawruntime_create"].find((name) => !exported.includes(name));
  if (missing) throw new TypeError(`it is another module: it exports no ${missing}`);
  return module;
}

async function unpack(packed: string): Promise<BufferSource> {
  const zipped = Uint8Array.from(atob(packed), (character) => character.charCodeAt(0));
  const stream = new Blob([zipped]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

/** Whether not even the empty module compiles here. Browsers word this refusal differently. */
async function refusedByPolicy(): Promise<boolean> {
  const empty = Uint8Array.of(0, 0x61, 0x73, 0x6d, 1, 0, 0, 0);
  return WebAssembly.compile(empty).then(
    () => false,
    () => true,
  );
}

function nameOf(source: ModuleSource | undefined): string {
  if (source instanceof URL) return source.href;
  if (typeof source === "string") return source.length > 200 ? `${source.slice(0, 200)}…` : source;
  return source === undefined ? "tinyloom_bg.wasm beside the package" : "the given wasm option";
}

function policyError(cause: unknown): TinyloomError {
  return new TinyloomError(
    "content-security",
    "the page's content-security policy forbids WebAssembly; add 'wasm-unsafe-eval' to its " +
      "script-src directive (in an extension: content_security_policy.extension_pages)",
    { cause },
  );
}

function loadError(source: ModuleSource | undefined, from: string, cause: unknown): TinyloomError {
  if (cause instanceof TinyloomError) return cause;
  const what = `the wasm module could not be loaded from ${from} (${said(cause)})`;
  const cure =
    source === undefined
      ? 'import "tinyloom/inline" instead, which carries the module; or, in Vite, set ' +
        'optimizeDeps: { exclude: ["tinyloom"] }; or pass Runtime.create({ wasm })'
      : "serve tinyloom_bg.wasm of this version there, or leave wasm out (in Vite 6 and 7 with " +
        'optimizeDeps: { exclude: ["tinyloom"] })';
  const code: ErrorCode =
    cause instanceof NotThere
      ? "module-unavailable"
      : source === undefined
        ? "internal"
        : "invalid-options";
  return new TinyloomError(code, `${what}; ${cure}`, { cause });
}
