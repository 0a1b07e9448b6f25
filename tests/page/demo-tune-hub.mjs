// A server of models of another origin than the page, for the tests of addresses.
import { createServer } from "node:http";

/** Headers with which a server lets pages of other origins read its files. */
const OPEN = {
  "access-control-allow-origin": "*",
  "access-control-allow-headers": "range",
  "access-control-expose-headers": "content-range",
};
/** Models whose every file has this status. */
const STATUS = { private: 401, broken: 503 };

/**
 * Serves models, each at `/NAME/`.
 *
 * @param models - files by the model's name. Of `closed` no other origin may read, and `slow` never answers.
 * @returns its address, and that of a server that is `gone`; `asked`: the paths that were asked for; `add`: one file more.
 */
export async function serveModels(t, models) {
  const asked = [];
  const server = createServer((request, response) => {
    const [, model, file] = /^\/([^/]+)\/(.*)$/.exec(request.url) ?? [];
    const open = model === "closed" ? {} : OPEN;
    if (request.method === "OPTIONS") return void response.writeHead(204, open).end();
    if (request.method !== "HEAD") asked.push(request.url);
    if (model === "slow") return;
    const bytes = models[model]?.[file];
    const status = STATUS[model] ?? (bytes ? 200 : 404);
    if (status !== 200) return void response.writeHead(status, open).end("no");
    const [, from, to] = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? "") ?? [];
    const begin = Number(from ?? 0);
    const end = Math.min(bytes.length, to ? Number(to) + 1 : bytes.length);
    const range = from && { "content-range": `bytes ${begin}-${end - 1}/${bytes.length}` };
    const length = { "content-length": end - begin };
    response.writeHead(from ? 206 : 200, { ...open, ...length, ...range });
    response.end(request.method === "HEAD" ? undefined : bytes.subarray(begin, end));
  });
  const other = createServer();
  const [url, gone] = [await listening(server), await listening(other)];
  other.close();
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const add = (model, file, bytes) => {
    models[model] = { ...models[model], [file]: bytes };
  };
  return { url, gone, asked, add };
}

async function listening(server) {
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  return `http://localhost:${server.address().port}`;
}
