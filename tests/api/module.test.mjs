// Where the wasm module comes from: every form of the `wasm` option, what happens where the file does
// not answer, and which error a page gets whose policy forbids it. In Chromium; no runtime is made in full
// where the load alone is the question: `gpu` then offers no adapter, which is reported after the load.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { launch, openPage } from "../../scripts/browser.mjs";
import { root } from "../../scripts/lib.mjs";
import { serve } from "../../scripts/server.mjs";

const dist = join(root, "pkg", "dist");
const page = (csp = "") =>
  Buffer.from(
    `<!doctype html><link rel="icon" href="data:,">${csp && `<meta http-equiv="content-security-policy" content="${csp}">`}`,
  );
const SERVICE = `
  import { Runtime } from "/inline.js";
  addEventListener("message", ({ data, source }) => {
    Runtime.create(data).then(
      (runtime) => { source.postMessage("made"); runtime.destroy(); },
      (error) => source.postMessage(error.code + ": " + error.message));
  });`;

let server;
let browser;
before(async () => {
  server = await serve({
    "/": dist,
    "/blank.html": page(),
    "/strict.html": page("script-src 'self' 'wasm-unsafe-eval'"),
    "/policy.html": page("script-src 'self'"),
    "/empty.wasm": Buffer.from([0, 0x61, 0x73, 0x6d, 1, 0, 0, 0]),
    "/named.wasm": Buffer.from("<!DOCTYPE html><title>home</title>"),
    "/service.js": Buffer.from(SERVICE),
    "/service-file.js": Buffer.from(SERVICE.replace("/inline.js", "/index.js")),
  });
  browser = await launch("chromium");
});
after(async () => {
  await browser?.close();
  await server?.close();
});

/** What `Runtime.create` says in a fresh page, and which files it asked for. `answer` may replace a file's. */
async function create(wasm = "", { path = "/blank.html", answer = {}, entry = "index.js" } = {}) {
  const asked = [];
  const tab = await openPage(browser, `${server.url}${path}`);
  await tab.setRequestInterception(true);
  tab.on("request", (request) => {
    const name = new URL(request.url()).pathname.split("/").at(-1);
    asked.push(name);
    answer[name] ? request.respond(answer[name]) : request.continue();
  });
  try {
    const said = await tab.evaluate(createInPage, entry, wasm);
    return { said, asked };
  } finally {
    await tab.close();
  }
}

/** In the page. */
async function createInPage(entry, wasm) {
  const { Runtime, TinyloomError } = await import(`/${entry}`);
  const bytes = async () => (await fetch("/tinyloom_bg.wasm")).arrayBuffer();
  const forms = {
    url: () => new URL("/tinyloom_bg.wasm", location.href),
    response: () => fetch("/tinyloom_bg.wasm"),
    bytes,
    module: async () => WebAssembly.compile(await bytes()),
    foreign: async () => WebAssembly.compile(Uint8Array.of(0, 0x61, 0x73, 0x6d, 1, 0, 0, 0)),
  };
  const made = wasm in forms ? await forms[wasm]() : wasm;
  const gpu = { requestAdapter: async () => null };
  const error = await Runtime.create({ gpu, ...(made ? { wasm: made } : {}) }).catch((one) => one);
  if (!(error instanceof TinyloomError)) return String(error);
  // The missing adapter is reported only after the module has been loaded.
  return error.code === "adapter-unavailable" ? "loaded" : `${error.code}: ${error.message}`;
}

const HTML = { status: 200, contentType: "text/html", body: "<!doctype html><title>home</title>" };

test("wasm takes an address as a URL or a string, a response, bytes and a compiled module", async () => {
  for (const form of [
    "url",
    "response",
    "bytes",
    "module",
    "/tinyloom_bg.wasm",
    "./tinyloom_bg.wasm",
  ])
    assert.equal((await create(form)).said, "loaded", form);
  assert.match((await create("http://")).said, /^invalid-options: .*"http:\/\/" is not a URL/);
});

test("another module is refused in every form", async () => {
  for (const form of ["foreign", "/empty.wasm"])
    assert.match((await create(form)).said, /^invalid-options: .*it is another module/, form);
});

test("the file is compiled as it comes, and its copy in JavaScript is not asked for", async () => {
  const { said, asked } = await create();
  assert.equal(said, "loaded");
  assert.ok(asked.includes("tinyloom_bg.wasm"));
  assert.ok(!asked.includes("packed.js"), asked.join());
  const untyped = readFileSync(join(dist, "tinyloom_bg.wasm"));
  const answer = { contentType: "application/octet-stream", body: untyped };
  const plain = await create(undefined, { answer: { "tinyloom_bg.wasm": answer } });
  assert.equal(plain.said, "loaded", "a server that does not know the type");
  assert.ok(!plain.asked.includes("packed.js"), plain.asked.join());
});

test("where the file does not answer, its copy in JavaScript does", async () => {
  const typed = { ...HTML, contentType: "application/wasm" };
  for (const answer of [HTML, typed, { status: 404, body: "" }, { status: 500, body: "" }]) {
    const { said, asked } = await create(undefined, { answer: { "tinyloom_bg.wasm": answer } });
    assert.equal(said, "loaded", JSON.stringify(answer));
    assert.ok(asked.includes("packed.js"), asked.join());
  }
});

test("where neither answers, the error has a code of its own and names the cure", async () => {
  const answer = { "tinyloom_bg.wasm": HTML, "packed.js": { status: 404, body: "" } };
  const { said } = await create(undefined, { answer });
  assert.match(said, /^module-unavailable: .*HTML came instead of wasm/);
  assert.match(said, /tinyloom\/inline.*optimizeDeps: \{ exclude: \["tinyloom"\] \}/);
});

test("HTML at a given address has that code too, and so has an address without a file", async () => {
  assert.match((await create("/blank.html")).said, /^module-unavailable: .*HTML.*optimizeDeps/);
  assert.match((await create("/none.wasm")).said, /^module-unavailable: .*404/);
  assert.match((await create("/named.wasm")).said, /^(module-unavailable|invalid-options): /);
});

test("a policy without 'wasm-unsafe-eval' gives an error that names the directive", async () => {
  assert.equal((await create(undefined, { path: "/strict.html" })).said, "loaded");
  for (const entry of ["index.js", "inline.js"]) {
    const { said } = await create(undefined, { path: "/policy.html", entry });
    assert.match(said, /^content-security: .*'wasm-unsafe-eval'.*script-src/, entry);
  }
});

test("tinyloom/inline asks for no file", async () => {
  const { said, asked } = await create(undefined, { entry: "inline.js" });
  assert.equal(said, "loaded");
  assert.ok(!asked.includes("tinyloom_bg.wasm"), asked.join());
});

test("a service worker makes a runtime, from the file and from inline", {
  timeout: 120_000,
}, async () => {
  for (const script of ["/service.js", "/service-file.js"]) {
    const tab = await openPage(browser, `${server.url}/blank.html`);
    const said = await tab.evaluate(async (path) => {
      const registered = await navigator.serviceWorker.register(path, { type: "module" });
      const worker = registered.installing ?? registered.waiting ?? registered.active;
      const heard = new Promise((done) => {
        navigator.serviceWorker.onmessage = ({ data }) => done(data);
      });
      if (worker.state !== "activated")
        await new Promise((done) => {
          worker.onstatechange = () => worker.state === "activated" && done();
        });
      worker.postMessage({});
      const answer = await heard;
      await registered.unregister();
      return answer;
    }, script);
    await tab.close();
    assert.equal(said, "made", script);
  }
});

test("in Firefox too: the file, a policy and HTML are told apart", {
  timeout: 120_000,
}, async () => {
  const firefox = await launch("firefox");
  try {
    const said = async (path, wasm = "") => {
      const tab = await openPage(firefox, `${server.url}${path}`);
      const outcome = await tab.evaluate(createInPage, "index.js", wasm);
      await tab.close();
      return outcome;
    };
    assert.equal(await said("/blank.html"), "loaded");
    assert.equal(await said("/strict.html"), "loaded");
    assert.match(await said("/policy.html"), /^content-security: .*'wasm-unsafe-eval'/);
    assert.match(await said("/blank.html", "/blank.html"), /^module-unavailable: .*HTML/);
  } finally {
    await firefox.close();
  }
});
