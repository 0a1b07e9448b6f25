// Where `connect()` gets its worker from: the file, its copy in JavaScript where the file does not answer,
// and which error a page gets whose policy forbids both: in Chromium and in Firefox; the core has the first.
// reads: tests/hosts/apps
import assert from "node:assert/strict";
import { join } from "node:path";
import { json } from "node:stream/consumers";
import { after, before, test } from "node:test";
import { launch, openPage } from "../../scripts/browser.mjs";
import { root } from "../../scripts/lib.mjs";
import { serve } from "../../scripts/server.mjs";
import { coreOf } from "../gate/core.mjs";
import { within } from "../page/demo-page.mjs";

/** Seconds that a page may take to open, and what runs in it. */
const [OPEN, WORK, ANSWER] = [60, 180, 60];
const LONG = { timeout: 300_000 };

const page = (policy) =>
  Buffer.from(
    `<!doctype html><link rel="icon" href="data:,"><meta http-equiv="content-security-policy" content="${policy}">`,
  );
const STRICT =
  "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; connect-src 'self'; img-src data:";
const TYPES = `${STRICT}; require-trusted-types-for 'script'; trusted-types`;
const PAGES = {
  "/free.html": page("img-src data:"),
  "/strict.html": page(STRICT),
  "/blob.html": page(`${STRICT}; worker-src 'self' blob:`),
  "/typed.html": page(`${TYPES} tinyloom`),
  "/typed-blob.html": page(`${TYPES} tinyloom; worker-src 'self' blob:`),
  "/other-types.html": page(`${TYPES} another`),
};
const mounts = {
  "/": join(root, "pkg", "dist"),
  "/apps": join(root, "tests", "hosts", "apps", "shared"),
  ...PAGES,
};
const HTML = Buffer.from("<!DOCTYPE html><title>home</title>");
const NOTHING = join(root, "no-such-folder");
/** Where the files are not, and the pages that ask for them: policies matter to the copy, not to what is away. */
const AWAY = {
  "not there": {
    files: { "/worker-thread.js": NOTHING, "/tinyloom_bg.wasm": NOTHING },
    pages: ["/free.html", "/blob.html", "/typed-blob.html"],
  },
  HTML: {
    files: { "/worker-thread.js": HTML, "/tinyloom_bg.wasm": HTML },
    pages: ["/free.html"],
  },
};

/** In the page: the outcome of the hosts' common body, the files it loaded, and refusals of the policy. */
async function workInPage() {
  const refused = [];
  addEventListener("securitypolicyviolation", ({ effectiveDirective }) => {
    refused.push(effectiveDirective);
  });
  const { connect } = await import("/worker/index.js");
  const { work } = await import("/apps/body.js");
  const { Worker } = globalThis;
  const outcome = await connect().then(work, ({ code, message }) => ({ code, message }));
  const loaded = performance.getEntriesByType("resource").map(({ name }) => name.split("/").at(-1));
  const restored = Worker === globalThis.Worker;
  return { ...outcome, refused, restored, copied: loaded.includes("text.js") };
}

for (const kind of coreOf(["chromium", "firefox"], 2)) {
  let browser;
  const servers = [];
  before(async () => {
    browser = await launch(kind, { seconds: WORK });
  });
  after(async () => {
    await browser?.close();
    for (const server of servers) await server.close();
  });

  const visit = async (path, away = {}) => {
    const server = await serve({ ...mounts, ...away });
    servers.push(server);
    const tab = await within(OPEN, path, openPage(browser, `${server.url}${path}`));
    try {
      return await within(ANSWER, `answer of ${path}`, tab.evaluate(workInPage));
    } finally {
      await within(OPEN, "end of the tab", tab.close());
    }
  };
  const trained = ({ steps, tokens, code, message, restored }) => {
    assert.deepEqual({ steps, tokens }, { steps: 25, tokens: 12 }, `${code}: ${message}`);
    assert.ok(restored, "globalThis.Worker is the page's");
  };

  test(`the file, under a strict policy, without its copy, in ${kind}`, LONG, async () => {
    for (const path of ["/strict.html", "/typed.html"]) {
      const outcome = await visit(path);
      trained(outcome);
      assert.equal(outcome.copied, false, path);
      assert.deepEqual(outcome.refused, [], path);
    }
  });

  for (const [what, { files, pages }] of Object.entries(AWAY)) {
    test(`the copy where the file is ${what}, in ${kind}`, LONG, async () => {
      for (const path of pages) {
        const outcome = await visit(path, files);
        trained(outcome);
        assert.equal(outcome.copied, true, path);
      }
    });
  }

  test(`a policy that forbids the copy is told, in ${kind}`, LONG, async () => {
    const { code, message } = await visit("/strict.html", AWAY["not there"].files);
    assert.equal(code, "content-security", message);
    for (const word of ["worker-thread.js", "blob:", "connect({ worker })", "serve()"]) {
      assert.ok(message.includes(word), message);
    }
  });

  test(`a policy without the name of the Trusted Types is told, in ${kind}`, LONG, async (t) => {
    const outcome = await visit("/other-types.html");
    if (kind === "firefox" && outcome.steps) return t.diagnostic("no Trusted Types here");
    assert.equal(outcome.code, "content-security", outcome.message);
    assert.match(outcome.message, /trusted-types.*tinyloom|tinyloom.*trusted-types/);
    assert.match(outcome.message, /connect\(\{ worker \}\)/);
  });
}

/** In the page: a run through the worker and one in the page itself; what the policy refused. */
async function workInBoth() {
  const refused = [];
  addEventListener("securitypolicyviolation", ({ effectiveDirective, blockedURI }) => {
    refused.push(`${effectiveDirective} ${blockedURI}`);
  });
  const { work } = await import("/apps/body.js");
  const { connect } = await import("/worker/index.js");
  const outcomes = [await connect().then(work), await work(await import("/index.js"))];
  return { outcomes, refused, isolated: crossOriginIsolated };
}

/** Takes the policies' reports, which come when they come. */
function reportBox() {
  const told = new Set();
  let arrived = () => {};
  const take = async (request) => {
    const { "csp-report": report } = await json(request);
    told.add(`${new URL(report["document-uri"]).pathname} ${report["blocked-uri"]}`);
    arrived();
  };
  return {
    take: (request) => void take(request).catch((error) => told.add(`${error}`)),
    /** What was refused in which document, sorted, once each of these paths has told something. */
    async of(paths) {
      const all = () => [...told].sort();
      while (!paths.every((path) => all().some((one) => one.startsWith(`${path} `)))) {
        await new Promise((done) => {
          arrived = done;
        });
      }
      return all();
    },
  };
}

// A policy in a header is the worker's too, whose file the same server sends. It lets nothing be asked of other
// hosts, and reports who tries.
test("a strict, isolated server: nothing is fetched but the package's files", LONG, async () => {
  const asked = [];
  const reports = reportBox();
  const policy = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; connect-src 'self'";
  const types = "require-trusted-types-for 'script'; trusted-types tinyloom; report-uri /report";
  const server = await serve(
    { ...mounts, "/bare.html": Buffer.from("<!doctype html><title>tinyloom</title>") },
    {
      isolated: true,
      sent: { "content-security-policy": `${policy}; ${types}` },
      onRequest: (request) => {
        if (request.url === "/report") reports.take(request);
        else asked.push(request.url);
      },
    },
  );
  const browser = await launch("chromium", { seconds: WORK });
  try {
    const tab = await within(OPEN, "page", openPage(browser, `${server.url}/bare.html`));
    const { outcomes, refused, isolated } = await tab.evaluate(workInBoth);
    for (const { steps, tokens, code, message } of outcomes)
      assert.deepEqual({ steps, tokens }, { steps: 25, tokens: 12 }, `${code}: ${message}`);
    assert.ok(isolated, "the page is isolated");
    // A tokenizer that is trained asks for a worker of its own, and does without where none may be.
    assert.deepEqual(refused, ["worker-src blob"], "refused by the page's policy");
    const paths = ["/bare.html", "/worker-thread.js"];
    const both = await within(OPEN, "report of both policies", reports.of(paths));
    assert.deepEqual(
      both,
      paths.map((path) => `${path} blob`),
      "refused by the page's and the worker's policy",
    );
    const named = /^\/([\w/-]+\.js|tinyloom_bg\.wasm|bare\.html)$/;
    assert.deepEqual(
      asked.filter((path) => !named.test(path)),
      [],
      "files that nobody named",
    );
    assert.ok(asked.includes("/worker-thread.js") && asked.includes("/tinyloom_bg.wasm"));
  } finally {
    await browser.close();
    await server.close();
  }
});
