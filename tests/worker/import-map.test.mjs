// The package that reads tokenizers, in a worker of a page without a bundler: the page's import map names it. In Chromium
// and in Firefox; the core has the first.
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { launch, openPage } from "../../scripts/browser.mjs";
import { root } from "../../scripts/lib.mjs";
import { serve } from "../../scripts/server.mjs";
import { coreOf } from "../gate/core.mjs";

/** Seconds that what runs in a page may take. */
const WORK = 120;
const LONG = { timeout: 240_000 };
const PEER = "@huggingface/tokenizers";

const page = (imports) => {
  const map = JSON.stringify({ imports: { "tinyloom/worker": "/worker/index.js", ...imports } });
  return Buffer.from(
    `<!doctype html><link rel="icon" href="data:,"><script type="importmap">${map}</script>`,
  );
};
const mounts = {
  "/": join(root, "pkg", "dist"),
  "/peer": join(root, "node_modules", PEER, "dist"),
  "/mapped.html": page({ [PEER]: "/peer/tokenizers.mjs" }),
  "/gone.html": page({ [PEER]: "/peer/not-there.mjs" }),
  "/unmapped.html": page({}),
  "/own.js": Buffer.from(
    "export class Tokenizer { constructor() { throw new Error('the given one'); } }",
  ),
};

/** In the page: what a tokenizer that the worker reads by the package says, with the `library` that is given. */
async function readInPage(library) {
  const words = ["[UNK]", "user", "asks", "it", "answers"];
  const json = {
    version: "1.0",
    truncation: null,
    padding: null,
    added_tokens: [],
    normalizer: null,
    pre_tokenizer: { type: "Whitespace" },
    post_processor: null,
    decoder: null,
    model: {
      type: "WordLevel",
      unk_token: "[UNK]",
      vocab: Object.fromEntries(words.map((word, id) => [word, id])),
    },
  };
  const { connect } = await import("tinyloom/worker");
  const { Tokenizer, Dataset, close } = await connect();
  try {
    const files = { "tokenizer.json": new Blob([JSON.stringify(json)]) };
    const tokenizer = await Tokenizer.fromPretrained(files, library && { library });
    const template = "{% for m in messages %}{{ m.role }} {{ m.content }} {% endfor %}";
    const chat = [
      { role: "user", content: "asks" },
      { role: "it", content: "answers" },
    ];
    const options = { template, validationFraction: 0, learn: "all" };
    const data = await Dataset.fromConversations([chat], tokenizer, options);
    const { tokens } = await data.document(0);
    return { ids: [...(await tokenizer.encode("asks it"))], tokens: [...tokens] };
  } catch ({ code, message }) {
    return { code, message };
  } finally {
    await close();
  }
}

for (const kind of coreOf(["chromium", "firefox"], 2)) {
  let browser;
  let server;
  before(async () => {
    server = await serve(mounts);
    browser = await launch(kind, { seconds: WORK });
  });
  after(async () => {
    await browser?.close();
    await server?.close();
  });

  const read = async (path, library) => {
    const tab = await openPage(browser, `${server.url}${path}`);
    try {
      return await tab.evaluate(readInPage, library);
    } finally {
      await tab.close();
    }
  };

  test(`the page's import map names the package for its worker, in ${kind}`, LONG, async () => {
    const { ids, tokens, message } = await read("/mapped.html");
    assert.deepEqual(ids, [2, 3], message);
    assert.deepEqual(tokens, [1, 2, 3, 4]);
  });

  test(`an address that is given comes first, in ${kind}`, LONG, async () => {
    const own = await read("/mapped.html", "/own.js");
    assert.match(own.message, /the given one/);
    const given = await read("/unmapped.html", "/peer/tokenizers.mjs");
    assert.deepEqual(given.ids, [2, 3], given.message);
  });

  test(`where no map names it, the error says what to do, in ${kind}`, LONG, async () => {
    for (const path of ["/unmapped.html", "/gone.html"]) {
      const { code, message } = await read(path);
      assert.equal(code, "module-unavailable", message);
      for (const word of [`npm install ${PEER}`, "import map", "{ library }"]) {
        assert.ok(message.includes(word), message);
      }
    }
  });
}
