// Chats with a real model in a page of Chromium: beside transformers, PEFT and llama.cpp.
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { launch, openPage } from "../../scripts/browser.mjs";
import { root, step } from "../../scripts/lib.mjs";
import { serve } from "../../scripts/server.mjs";
import { chatRow, equalRow, learnedRow } from "./compare.mjs";

const CHATS = JSON.parse(readFileSync(join(import.meta.dirname, "chats.json"), "utf8"));
/** Tokens of an answer, as chats.py has it. */
const MOST = 32;

const MODULES = {
  tinyloom: "/pkg/dist/index.js",
  "@huggingface/tokenizers": "/tokenizers/tokenizers.mjs",
};
const BLANK = `<!doctype html><title>chats</title><script type="importmap">${JSON.stringify({ imports: MODULES })}</script>`;

/**
 * Calls a function of chat-page.mjs in a page.
 *
 * @param folder - of the model.
 * @param packages - the folder that has `@wllama/wllama` and `@huggingface/tokenizers`.
 */
async function inPage({ folder, packages }, name, ...given) {
  const server = await serve({
    "/blank.html": Buffer.from(BLANK),
    "/pkg": join(root, "pkg"),
    "/tests": join(root, "tests"),
    "/real": folder,
    "/tokenizers": join(packages, "@huggingface", "tokenizers", "dist"),
    "/wllama": join(packages, "@wllama", "wllama", "esm"),
  });
  const browser = await launch("chromium");
  try {
    const page = await openPage(browser, `${server.url}/blank.html`, (_, text) => step(text));
    return await page.evaluate(
      async (what, ...values) => (await import("/tests/real/chat-page.mjs"))[what](...values),
      name,
      "/real/model.gguf",
      ...given,
    );
  } finally {
    await browser.close();
    await server.close();
  }
}

const recorded = (folder, part) =>
  JSON.parse(readFileSync(join(folder, part, "transformers.json"), "utf8"));

/** Answers of the model in the GGUF file. */
export async function chatRows(where, quick) {
  const reference = recorded(where.folder, "chat");
  const wanted = quick ? reference.answers.slice(0, 1) : reference.answers;
  const questions = wanted.map(({ question }) => question);
  const { about, answers } = await inPage(where, "answers", questions, MOST);
  const row = chatRow("streamed answers of a chat in a page", answers, wanted, reference);
  return { about, rows: [{ weights: "f32", ...row }] };
}

/** Trains on the chats and asks for them; leaves in `tuned` what PEFT is asked about later. */
export async function tunedRows(where) {
  const { adapter, about, ...made } = await inPage(where, "tuned", CHATS.chats, MOST);
  const out = join(where.folder, "tuned");
  mkdirSync(join(out, "adapter"), { recursive: true });
  for (const [name, bytes] of Object.entries(adapter))
    writeFileSync(join(out, "adapter", name), Buffer.from(bytes, "base64"));
  writeFileSync(join(out, "tinyloom.json"), JSON.stringify({ about, ...made }));
  const texts = made.withAdapter.map(({ pieces }) => pieces.join(""));
  const learned = CHATS.chats.map(([, answer]) => answer);
  const ids = (answers) => answers.map(({ tokens }) => tokens.join(" "));
  const llama = made.llama.map(({ text }) => text);
  const reads = made.llama.every(({ read }, i) => read === made.withAdapter[i].prompt.length);
  const rows = [
    learnedRow("LoRA on ten chats: answers are those of the chats", texts, learned, made.losses),
    equalRow(
      "the merged model answers as the adapter does",
      ids(made.merged),
      ids(made.withAdapter),
    ),
    equalRow("llama.cpp answers so from the merged GGUF file", reads ? llama : [], texts),
  ];
  return { about, rows: rows.map((row) => ({ weights: "f32", ...row })) };
}

/** What PEFT, which has read the adapter, answers. */
export function peftRows({ folder }) {
  const { withAdapter, about } = JSON.parse(readFileSync(join(folder, "tuned", "tinyloom.json")));
  const reference = recorded(folder, "tuned");
  const check = "PEFT answers so from the saved adapter";
  const row = chatRow(check, withAdapter, reference.answers, reference);
  return { about, rows: [{ weights: "f32", ...row }] };
}
