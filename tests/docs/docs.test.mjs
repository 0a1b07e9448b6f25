// Every code block of the README and of the guides runs as printed, to its end, where its code or what it uses has changed.
// The JavaScript blocks of a document are one program in a page, in their order; blocks marked `js node` are
// one in Node.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import { launch } from "../../scripts/browser.mjs";
import { codeBlocks } from "../../scripts/documents.mjs";
import { root, target } from "../../scripts/lib.mjs";
import { dawnEnv } from "../../scripts/machine.mjs";
import { writeCheckpoint } from "../../scripts/random-checkpoint.mjs";
import { serve } from "../../scripts/server.mjs";
import { writeChatGguf } from "./chat-gguf.mjs";
import { documents, openDocuments } from "./documents.mjs";

/** What answers instead of a hub: the folders of each address that a document loads from. */
const HUB = {
  "https://huggingface.co/HuggingFaceTB/SmolLM2-135M/resolve/main/": [
    join(root, "tests/reference/fixtures/llama"),
    join(root, "tests/files/hub-tokenizer"),
  ],
  "https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct/resolve/main/": [
    join(target, "documents", "chat-model"),
  ],
  "https://huggingface.co/bartowski/SmolLM2-135M-Instruct-GGUF/resolve/main/": [
    join(target, "documents", "chat-gguf"),
  ],
  "https://huggingface.co/nobody/nothing/resolve/main/": [],
};
const MODULES = {
  tinyloom: "/node_modules/tinyloom/dist/index.js",
  "tinyloom/align": "/node_modules/tinyloom/dist/align/index.js",
  "tinyloom/ops": "/node_modules/tinyloom/dist/ops.js",
  "tinyloom/storage": "/node_modules/tinyloom/dist/storage/index.js",
  "tinyloom/worker": "/node_modules/tinyloom/dist/worker/index.js",
  "@huggingface/tokenizers": "/node_modules/@huggingface/tokenizers/dist/tokenizers.mjs",
};
const BLANK = `<!doctype html><script type="importmap">${JSON.stringify({ imports: MODULES })}</script>`;

const blocks = documents.flatMap(codeBlocks);
const { run, left, passed, ended } = openDocuments();
/** Of the core's documents every so-manieth has programs that run; the core of the others is empty. */
const CORE_ONE_OF = 8;
const outside = ({ core }, index) => core && index % CORE_ONE_OF > 0;
for (const one of run.filter(outside)) passed(one.name);
const chosen = run.filter((one, index) => !outside(one, index)).map(({ name }) => name);
const ran = new Set();
let browser;

/** A chat model of random weights that packs, with a tokenizer that a GGUF file can have. */
async function makeChatModel(folder) {
  const { BpeTokenizer } = await import("tinyloom");
  const text = "Is the boat small? Yes, it is small. Is the boat old? No, it is not old. ".repeat(
    9,
  );
  const chatTemplate =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}" +
    "{% if add_generation_prompt %}<assistant>{% endif %}";
  const tokenizer = await BpeTokenizer.train(text, { vocabSize: 320, chatTemplate });
  const config = {
    model_type: "llama",
    vocab_size: tokenizer.vocabSize,
    hidden_size: 64,
    intermediate_size: 128,
    num_hidden_layers: 2,
    num_attention_heads: 2,
    max_position_embeddings: 128,
    tie_word_embeddings: true,
  };
  await writeCheckpoint(folder, config);
  for (const [name, bytes] of Object.entries(tokenizer.save())) {
    writeFileSync(join(folder, name), bytes);
  }
  const other = join(target, "documents", "chat-gguf");
  mkdirSync(other, { recursive: true });
  await writeChatGguf(folder, join(other, "SmolLM2-135M-Instruct-Q8_0.gguf"));
}

before(async () => {
  await makeChatModel(join(target, "documents", "chat-model"));
  // Chromium on a CPU takes three times as long to compile the kernels of so many programs.
  browser = await launch("firefox");
});
after(() => browser.close());

/** A page at a path of a server that has the package, the blank page and further files. */
async function visit(t, path, files, work) {
  const buffers = Object.entries({ "/blank.html": BLANK, "/favicon.ico": "", ...files });
  const server = await serve({
    "/node_modules/tinyloom/dist": join(root, "pkg/dist"),
    "/node_modules/@huggingface": join(root, "node_modules/@huggingface"),
    ...Object.fromEntries(buffers.map(([name, text]) => [name, Buffer.from(text)])),
  });
  const page = await browser.newPage();
  try {
    page.setDefaultTimeout(0);
    const console = [];
    const errors = [];
    page.on("console", (message) => {
      // A file that a checkpoint need not have, or one that the document looks for in vain.
      if (Object.keys(HUB).some((base) => message.location().url?.startsWith(base))) return;
      (message.type() === "error" ? errors : console).push(message.text());
    });
    page.on("pageerror", (error) => errors.push(String(error?.stack ?? error)));
    // Puppeteer leaves the imports of a worker without an answer where it intercepts requests.
    if (!buffers.some(([, text]) => /new Worker\(|\bconnect\(/.test(text))) {
      await page.setRequestInterception(true);
      page.on("request", (request) => answer(request, server.url));
    }
    await page.goto(server.url + path, { waitUntil: "load" });
    await work(page, errors);
    assert.deepEqual(errors, [], `the page's console has errors, after\n${console.join("\n")}`);
    t.diagnostic(`${console.length} lines printed, the last: ${console.at(-1)?.slice(0, 160)}`);
  } finally {
    await page.close();
    await server.close();
  }
}

/** Lets the page's own requests through, answers the hub's, and refuses every other. */
function answer(request, own) {
  const url = request.url();
  if (url.startsWith(own) || /^(data|blob):/.test(url)) return void request.continue();
  const base = Object.keys(HUB).find((address) => url.startsWith(address));
  const headers = { "access-control-allow-origin": "*" };
  if (!base) return void request.abort();
  const name = url.slice(base.length);
  const folder = HUB[base].find((one) => existsSync(join(one, name)));
  if (!folder) return void request.respond({ status: 404, headers, body: "Entry not found" });
  request.respond({ status: 200, headers, body: readFileSync(join(folder, name)) });
}

/** Runs the JavaScript of a document as one module of a page. */
function runModule(t, source) {
  return visit(t, "/blank.html", { "/program.mjs": source }, (page) =>
    page.evaluate(() => import("/program.mjs").then(() => undefined)),
  );
}

/** Opens a document's page and waits until it has said that it is done. */
function runPage(t, source) {
  return visit(t, "/index.html", { "/index.html": source }, async (page, errors) => {
    while (errors.length === 0) {
      if (await page.evaluate(() => document.body.textContent.endsWith("Done."))) return;
      await new Promise((done) => setTimeout(done, 200));
    }
  });
}

async function runInNode(t, name, source) {
  const folder = join(target, "documents"); // below the root, where the packages are found
  mkdirSync(folder, { recursive: true });
  const path = join(folder, `${name}.mjs`);
  writeFileSync(path, source);
  const env = { ...process.env, ...dawnEnv() };
  const { stdout } = await promisify(execFile)(process.execPath, [path], { cwd: folder, env });
  t.diagnostic(`printed ${stdout.trim()}`);
}

const KINDS = [
  { name: "in a page", wants: (one) => one.language === "js" && !one.inNode, run: runModule },
  { name: "in Node", wants: (one) => one.language === "js" && one.inNode, run: null },
];

for (const path of chosen) {
  const own = blocks.filter((block) => block.path === path && block.reason === undefined);
  let failed = 0;
  const runs = (title, work) =>
    test(title, { timeout: 600_000 }, async (t) => {
      failed += 1; // until it has ended well
      await work(t);
      failed -= 1;
    });
  for (const { name, wants, run } of KINDS) {
    const some = own.filter(wants);
    if (some.length === 0) continue;
    runs(`${path}: ${some.length} blocks ${name}`, async (t) => {
      const source = some.map(({ code }) => code).join("\n");
      await (run ? run(t, source) : runInNode(t, basename(path, ".md"), source));
      for (const block of some) ran.add(block);
    });
  }
  for (const block of own.filter(({ language }) => language === "html")) {
    runs(`${path}: the page at line ${block.line}`, async (t) => {
      await runPage(t, block.code);
      ran.add(block);
    });
  }
  test(`${path}: all of its blocks`, () => {
    assert.equal(failed, 0, "programs that failed");
    passed(path);
  });
}

test("every block runs, or says why it does not", (t) => {
  const inReadme = ({ path, language }) => path === "README.md" && /^(html|js)$/.test(language);
  // JavaScript and pages of the documents that have passed as they are, or wait for `npm run test:rest`.
  const others = new Set(
    blocks.filter(
      ({ path, language, reason }) =>
        path !== "README.md" && !chosen.includes(path) && /^(html|js)$/.test(language) && !reason,
    ),
  );
  const told = (block) => inReadme(block) || block.reason || block.language === "text";
  const silent = blocks.filter((block) => !ran.has(block) && !others.has(block) && !told(block));
  const place = ({ path, line, language }) => `${path}:${line} (${language})`;
  const marked = blocks.filter(({ reason }) => reason !== undefined);
  t.diagnostic(
    `${ran.size} blocks ran here, ${blocks.filter(inReadme).length} in readme.test.mjs, ${others.size} of documents that have passed; ${left} documents have not: npm run test:rest -- pkg/docs`,
  );
  for (const block of marked) t.diagnostic(`not run: ${place(block)}: ${block.reason}`);
  assert.deepEqual(silent.map(place), [], "blocks that neither run nor say why not");
  const excused = marked.filter(({ language }) => /^(js|html)$/.test(language));
  assert.deepEqual(excused.map(place), [], "JavaScript always runs; a local server is the network");
  ended();
});
