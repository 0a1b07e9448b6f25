// A static file server on localhost.
import { createReadStream, statSync } from "node:fs";
import { createServer } from "node:http";
import { extname, join, resolve, sep } from "node:path";
import { Failure } from "./lib.mjs";

const TYPES = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".mjs": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".json": "application/json",
  ".webmanifest": "application/manifest+json",
  ".wasm": "application/wasm",
  ".svg": "image/svg+xml",
  ".png": "image/png",
  ".ico": "image/x-icon",
  ".txt": "text/plain; charset=utf-8",
  ".woff2": "font/woff2",
};

/**
 * Serves folders on 127.0.0.1.
 *
 * @param mounts - folder by path prefix, such as `{ "/": "www/dist" }`; a Buffer instead of
 *   a folder is served as it is: `{ "/blank.html": Buffer.from("<title>…") }`.
 * @param port - 0 takes any free port.
 * @param fallbackToAny - whether a port in use is replaced by a free one.
 * @param isolated - whether pages are cross-origin isolated: their clock counts by 5 µs, not by 100.
 * @param sent - further headers of every answer, by name.
 * @param onRequest - called with each request.
 */
export async function serve(
  mounts,
  { port = 0, fallbackToAny = false, isolated = false, sent = {}, onRequest = () => {} } = {},
) {
  const prefixes = Object.keys(mounts).sort((a, b) => b.length - a.length);
  const server = createServer((request, response) => {
    onRequest(request);
    for (const [name, value] of Object.entries(sent)) response.setHeader(name, value);
    if (isolated) {
      response.setHeader("cross-origin-opener-policy", "same-origin");
      response.setHeader("cross-origin-embedder-policy", "require-corp");
    }
    const path = decodePath(request.url);
    const prefix =
      path &&
      prefixes.find((one) => path === one || path.startsWith(one.endsWith("/") ? one : `${one}/`));
    if (!prefix) return void response.writeHead(404).end("not found");
    const mount = mounts[prefix];
    if (Buffer.isBuffer(mount)) return sendBuffer(response, path, mount);
    sendFile(response, request, resolve(mount), path.slice(prefix.length));
  });
  try {
    await listen(server, port);
  } catch (error) {
    if (error.code === "EACCES") {
      throw new Failure(`port ${port} may not be opened by this user; give another --port`);
    }
    if (error.code !== "EADDRINUSE") throw error;
    if (!fallbackToAny) {
      throw new Failure(`port ${port} is in use; give another --port, or 0 for any free one`);
    }
    await listen(server, 0);
  }
  const url = `http://localhost:${server.address().port}`;
  const close = () => {
    server.closeAllConnections();
    return new Promise((done) => server.close(done));
  };
  return { url, close };
}

function listen(server, port) {
  return new Promise((done, fail) => {
    server.once("error", fail);
    server.listen(port, "127.0.0.1", () => {
      server.off("error", fail);
      done();
    });
  });
}

function decodePath(url) {
  try {
    const path = decodeURIComponent(new URL(url, "http://localhost").pathname);
    return path.includes("\0") ? undefined : path; // no file's name has one
  } catch {
    return undefined;
  }
}

const headers = (path, length) => ({
  "content-type": TYPES[extname(path)] ?? "application/octet-stream",
  "content-length": length,
  "cache-control": "no-cache",
});

/** The bytes of `Range: bytes=BEGIN-[LAST]`; of any other range, or one past the end, the whole file. */
function part(range, size) {
  const [, from, last] = /^bytes=(\d+)-(\d*)$/.exec(range ?? "") ?? [];
  const begin = Number(from ?? size);
  return begin < size ? { begin, end: Math.min(size, last ? Number(last) + 1 : size) } : undefined;
}

function sendBuffer(response, path, buffer) {
  response.writeHead(200, headers(path, buffer.length)).end(buffer);
}

function sendFile(response, { method, headers: asked }, folder, rest) {
  let file = join(folder, rest);
  if (file !== folder && !file.startsWith(folder + sep)) return void response.writeHead(403).end();
  let stat = statSync(file, { throwIfNoEntry: false });
  if (stat?.isDirectory()) {
    file = join(file, "index.html");
    stat = statSync(file, { throwIfNoEntry: false });
  }
  if (!stat) return void response.writeHead(404).end("not found");
  const range = part(asked.range, stat.size);
  const length = range ? range.end - range.begin : stat.size;
  const place = range && { "content-range": `bytes ${range.begin}-${range.end - 1}/${stat.size}` };
  response.writeHead(range ? 206 : 200, { ...headers(file, length), ...place });
  if (method === "HEAD") return void response.end();
  const bounds = range ? { start: range.begin, end: range.end - 1 } : {};
  createReadStream(file, bounds).pipe(response);
}
