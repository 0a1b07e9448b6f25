// Places of files: repositories of the hub, paths, a caller's own fetch, and the cache in Node.
import assert from "node:assert/strict";
import { mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { join, relative } from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import { target } from "../../scripts/lib.mjs";

const { openSource } = await import("../../pkg/dist/file-source.js");
const { readText } = await import("../../pkg/dist/checkpoint-files.js");

const open = (source, options = {}) => openSource("Model.fromPretrained", source, options);
const placeOf = (source) => open(source).place("config.json");

test("hf: names a repository of the hub, a revision, and a file", () => {
  const hub = "https://huggingface.co";
  for (const [source, expected] of [
    ["hf:org/name", `${hub}/org/name/resolve/main/config.json`],
    ["hf:org/name/", `${hub}/org/name/resolve/main/config.json`],
    ["hf:Org-1/na.me_2@v1.0", `${hub}/Org-1/na.me_2/resolve/v1.0/config.json`],
    ["hf:org/name@refs/pr/7", `${hub}/org/name/resolve/refs%2Fpr%2F7/config.json`],
    ["hf:org/name@main/onnx", `${hub}/org/name/resolve/main/onnx/config.json`],
    ["hf:org/name@a b", `${hub}/org/name/resolve/a%20b/config.json`],
    ["hf:org/name/q 8.gguf", `${hub}/org/name/resolve/main/q%208.gguf (config.json)`],
    ["hf:org/name@abc/in/q8.gguf", `${hub}/org/name/resolve/abc/in/q8.gguf (config.json)`],
  ]) {
    assert.equal(placeOf(source), expected, source);
  }
  for (const source of ["hf:name", "hf:", "hf:org/", "hf:/org/name", "hf:o r g/name"]) {
    const expected = { code: "invalid-options", message: /hf:OWNER\/NAME@REVISION/ };
    assert.throws(() => open(source), expected, source);
  }
});

test("a path is a folder or a GGUF file of the disk", async () => {
  const folder = join(target, "addresses", "a folder 100% #1");
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "config.json"), "{}");
  const href = pathToFileURL(join(folder, "config.json")).href;
  for (const source of [folder, `${folder}/`, relative(process.cwd(), folder)]) {
    assert.equal(placeOf(source), href, source);
    assert.equal(await readText(open(source), "config.json", 9), "{}");
  }
  assert.equal(placeOf(`./${relative(process.cwd(), folder)}`), href);
  assert.equal(
    placeOf(join(folder, "q8.gguf")),
    `${pathToFileURL(join(folder, "q8.gguf")).href} (config.json)`,
  );
  const missing = open("org/name");
  await assert.rejects(
    readText(missing, "config.json", 9),
    /org\/name\/config\.json is missing.*hf:org\/name/,
  );
  await assert.rejects(readText(open(`${folder}/none`), "config.json", 9), (error) => {
    return !error.message.includes("hf:");
  });
});

/** A server that gives `{}` to whoever has the token, and counts. */
async function withServer(work) {
  const asked = [];
  const server = createServer((request, response) => {
    asked.push(request.url);
    if (request.headers.authorization !== "Bearer secret")
      return void response.writeHead(401).end();
    if (!request.url.endsWith("/config.json")) return void response.writeHead(404).end();
    response.writeHead(200, { "content-length": 2 }).end("{}");
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  try {
    await work(`http://127.0.0.1:${server.address().port}`, asked);
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

const own = (url, init) =>
  fetch(url, { ...init, headers: { ...init.headers, authorization: "Bearer secret" } });

test("a caller's fetch asks with a token, also for a repository", async () => {
  await withServer(async (base) => {
    await assert.rejects(readText(open(`${base}/m/`), "config.json", 9), {
      code: "invalid-checkpoint",
      message: /\/m\/config\.json answered 401 Unauthorized: check the name; .* token .* fetch$/,
    });
    assert.equal(await readText(open(`${base}/m/`, { fetch: own }), "config.json", 9), "{}");
    const urls = [];
    const toServer = (url, init) => {
      urls.push(url);
      return own(url.replace("https://huggingface.co", base), init);
    };
    assert.equal(
      await readText(open("hf:org/name@v2", { fetch: toServer }), "config.json", 9),
      "{}",
    );
    assert.deepEqual(urls, ["https://huggingface.co/org/name/resolve/v2/config.json"]);
    const failing = () => Promise.reject(new Error("no network"));
    await assert.rejects(readText(open(`${base}/m/`, { fetch: failing }), "config.json", 9), {
      code: "invalid-checkpoint",
      message: /could not be fetched.*no network/,
    });
  });
});

test("in Node the cache is a folder, where a file is whole or not at all", async () => {
  const caches = join(target, "addresses", "caches");
  rmSync(caches, { recursive: true, force: true });
  const before = process.env.XDG_CACHE_HOME;
  process.env.XDG_CACHE_HOME = caches;
  try {
    await withServer(async (base, asked) => {
      const options = { cache: true, fetch: own };
      for (const _ of [1, 2]) {
        assert.equal(await readText(open(`${base}/m/`, options), "config.json", 9), "{}");
      }
      assert.equal(await open(`${base}/m/`, options).find("generation_config.json"), undefined);
      assert.deepEqual(asked, ["/m/config.json", "/m/generation_config.json"]);
      assert.equal(await readText(open(`${base}/other/`, options), "config.json", 9), "{}");
      assert.equal(asked.length, 3, "another address is another file");
      const short = async () => new Response("{", { headers: { "content-length": "2" } });
      const cut = open(`${base}/cut/`, { cache: true, fetch: short });
      await assert.rejects(readText(cut, "config.json", 9), /ended at byte 1 of 2/);
      const kept = readdirSync(join(caches, "tinyloom", "files"));
      assert.equal(kept.length, 2, kept.join());
      assert.ok(
        kept.every((name) => /^[0-9a-f]{32}-config\.json$/.test(name)),
        kept.join(),
      );
    });
  } finally {
    if (before === undefined) delete process.env.XDG_CACHE_HOME;
    else process.env.XDG_CACHE_HOME = before;
  }
});
