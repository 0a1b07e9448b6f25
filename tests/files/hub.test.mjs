// Loading from a server that answers as the Hugging Face hub does: small files redirect to another path,
// weights to another origin by an address that is signed anew each time; parts of files; an index of shards.
// reads: tests/reference/fixtures/llama tests/files/hub-tokenizer
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { root } from "../../scripts/lib.mjs";
import { concat, makeFile, openFile } from "../api/bodies/kit.mjs";
import { coreOf } from "../gate/core.mjs";
import { withPage } from "../lanes/harness.mjs";

const REPOSITORY = "/org/tiny/resolve/main/";
const CORS = {
  "access-control-allow-origin": "*",
  "access-control-expose-headers": "ETag, Accept-Ranges, Content-Range, X-Linked-Size",
};
const fixture = join(root, "tests/reference/fixtures/llama");
const files = hubFiles();
const log = [];
let hub;
let cdn;

/** The fixture's files, with the weights in two shards. */
function hubFiles() {
  const { header, data } = openFile(
    new Uint8Array(readFileSync(join(fixture, "model.safetensors"))),
  );
  const entries = Object.entries(header).filter(([name]) => name !== "__metadata__");
  const half = Math.ceil(entries.length / 2);
  const shards = [entries.slice(0, half), entries.slice(half)];
  const made = { "config.json": readFileSync(join(fixture, "config.json")) };
  const map = {};
  shards.forEach((shard, i) => {
    const name = `model-0000${i + 1}-of-00002.safetensors`;
    const own = {};
    const pieces = [];
    let at = 0;
    for (const [tensor, entry] of shard) {
      const [begin, end] = entry.data_offsets;
      pieces.push(data.subarray(begin, end));
      own[tensor] = { ...entry, data_offsets: [at, at + end - begin] };
      at += end - begin;
      map[tensor] = name;
    }
    made[name] = Buffer.from(makeFile(own, concat(pieces)));
  });
  made["model.safetensors.index.json"] = Buffer.from(JSON.stringify({ weight_map: map }));
  return made;
}

function send(request, response, bytes, headers) {
  const range = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? "");
  const [begin, end] = range
    ? [Number(range[1]), Math.min(bytes.length, range[2] ? Number(range[2]) + 1 : bytes.length)]
    : [0, bytes.length];
  response.writeHead(range ? 206 : 200, {
    ...CORS,
    ...headers,
    "accept-ranges": "bytes",
    "content-length": end - begin,
    ...(range && { "content-range": `bytes ${begin}-${end - 1}/${bytes.length}` }),
  });
  response.end(bytes.subarray(begin, end));
}

function started(answer) {
  const server = createServer((request, response) => {
    if (request.method === "OPTIONS") {
      const allowed = {
        "access-control-allow-headers": "range",
        "access-control-allow-methods": "GET",
      };
      return void response.writeHead(204, { ...CORS, ...allowed }).end();
    }
    answer(request, response);
  });
  return new Promise((done) => server.listen(0, "127.0.0.1", () => done(server)));
}

const address = (server) => `http://127.0.0.1:${server.address().port}`;

before(async () => {
  let signature = 0;
  const signed = new Set();
  cdn = await started((request, response) => {
    const url = new URL(request.url, "http://cdn");
    log.push(`cdn ${url.pathname} ${request.headers.range ?? "whole"}`);
    const known = signed.has(url.searchParams.get("Signature"));
    const bytes = files[url.pathname.slice(1)];
    if (!known || !bytes) return void response.writeHead(403, CORS).end();
    send(request, response, bytes, { "content-type": "binary/octet-stream" });
  });
  hub = await started((request, response) => {
    const { pathname } = new URL(request.url, "http://hub");
    const name = pathname.split("/").at(-1);
    log.push(`hub ${pathname}`);
    const bytes = files[name];
    if (pathname.startsWith("/api/resolve-cache/")) {
      return send(request, response, bytes, { "content-type": "text/plain", etag: '"1"' });
    }
    if (!pathname.startsWith(REPOSITORY) || !bytes) {
      response.writeHead(404, { ...CORS, "x-error-code": "EntryNotFound" });
      return void response.end("Entry not found");
    }
    if (!name.endsWith(".safetensors")) {
      response.writeHead(307, {
        ...CORS,
        location: `/api/resolve-cache/models/org/tiny/abc/${name}`,
      });
      return void response.end();
    }
    signature += 1;
    signed.add(String(signature));
    const location = `${address(cdn)}/${name}?Signature=${signature}`;
    response.writeHead(302, { ...CORS, "x-linked-size": bytes.length, location }).end();
  });
});
after(() => {
  for (const server of [hub, cdn]) {
    server.closeAllConnections();
    server.close();
  }
});

/** Loads in a page; gives the first logits, those of the fixture's files, and the stages of progress. */
function load(page, url, options) {
  return page.evaluate(
    async (base, source, given) => {
      const { Model, Runtime } = await import(`${base}/pkg/index.js`);
      const runtime = await Runtime.create();
      const stages = new Set();
      try {
        const onProgress = ({ stage }) => stages.add(stage);
        const model = await Model.fromPretrained(runtime, source, { ...given, onProgress });
        const own = await Model.fromPretrained(runtime, `${base}/tests/reference/fixtures/llama/`);
        const tokens = [1, 2, 3, 4];
        const [loaded, expected] = [await model.logits(tokens), await own.logits(tokens)];
        return { same: loaded.every((one, i) => one === expected[i]), stages: [...stages] };
      } catch (error) {
        return { code: error.code, message: error.message };
      } finally {
        runtime.destroy();
      }
    },
    url.base,
    url.source,
    options,
  );
}

for (const kind of coreOf(["chromium", "firefox"], 2)) {
  test(`a sharded checkpoint loads from a hub, in ${kind}`, { timeout: 300_000 }, async (t) => {
    await withPage(
      kind,
      () => {},
      async (page, base) => {
        const url = { base, source: `${address(hub)}${REPOSITORY}` };
        log.length = 0;
        const direct = await load(page, url, {});
        assert.equal(direct.same, true, JSON.stringify(direct));
        assert.ok(
          direct.stages.includes("download model-00001-of-00002.safetensors"),
          direct.stages.join(),
        );
        const weights = log.filter((one) => one.startsWith("cdn"));
        assert.ok(
          weights.every((one) => one.includes("bytes=")),
          `parts are asked for: ${weights}`,
        );

        log.length = 0;
        const first = await load(page, url, { cache: true });
        assert.equal(first.same, true, JSON.stringify(first));
        assert.equal(
          log.filter((one) => one.startsWith("cdn")).length,
          2,
          "each shard is downloaded once",
        );
        log.length = 0;
        const second = await load(page, url, { cache: true });
        assert.equal(second.same, true, JSON.stringify(second));
        assert.deepEqual(
          log,
          ["generation_config.json", "model.safetensors"].map((name) => `hub ${REPOSITORY}${name}`),
          "all but the files that are not there",
        );
        const kept = await page.evaluate(
          async () => (await (await caches.open("tinyloom")).keys()).length,
        );
        assert.equal(kept, 4);

        const none = await load(
          page,
          { base, source: `${address(hub)}/org/none/resolve/main/` },
          {},
        );
        assert.equal(none.code, "invalid-checkpoint");
        assert.ok(none.message.includes("/org/none/resolve/main/config.json"), none.message);
        t.diagnostic(`${weights.length} requests for weights without the cache, none with it`);
      },
    );
  });
}
