// Rows of real tokenizers, templates, adapters and files: tests of `npm test` that compare them with Python's programs and
// llama.cpp, and say how much they have compared.
import { join } from "node:path";
import { run } from "node:test";
import { root, step } from "../../scripts/lib.mjs";

/** The files, and what their rows are called. */
const FILES = {
  "tests/text/tokenizers-real.test.mjs": "tokenizers, beside tokenizers",
  "tests/decode/real-tokenizers.test.mjs": "tokenizers, token healing",
  "tests/text/pairs.test.mjs": "tokenizers, prompt and completion",
  "tests/text/chats-real.test.mjs": "chats, ids beside tokenizers",
  "tests/text/templates-real.test.mjs": "templates, beside jinja2 and transformers",
  "tests/text/chats.test.mjs": "templates, masks beside TRL",
  "tests/files/peft.test.mjs": "adapters, beside PEFT",
  "tests/files/gguf-read.test.mjs": "GGUF files read, beside gguf",
  "tests/files/gguf.test.mjs": "GGUF files written, beside gguf and llama.cpp",
  "tests/text/gguf-vocabulary.test.mjs": "GGUF vocabularies, beside llama.cpp",
  "tests/text/tokenizer-files.test.mjs": "folders of tokenizers",
};

/** What the runner says of a whole file. */
const OF_FILE = /^(tests|suites|pass|fail|cancelled|skipped|todo|duration_ms) /;

/** The largest number by which a test says two sides are apart; 0 where it says that all are equal. */
function worstIn(said) {
  const found = [...said.matchAll(/([\d.]+(?:e[+-]?\d+)?) apart|apart ([\d.]+(?:e[+-]?\d+)?)/g)];
  return Math.max(0, ...found.map(([, before, behind]) => Number(before ?? behind)));
}

/**
 * A row for each test that says what it compared, and for each that fails.
 *
 * @param words - one of them is in the path of each file that runs; all run where there is none.
 */
export async function formsRows(words = [""]) {
  const rows = [];
  const chosen = ([file]) => words.some((word) => file.includes(word));
  for (const [file, model] of Object.entries(FILES).filter(chosen)) {
    step(file);
    let last;
    for await (const { type, data } of run({ files: [join(root, file)], concurrency: 1 })) {
      if (type === "test:diagnostic" && !OF_FILE.test(data.message)) last?.said.push(data.message);
      if (type !== "test:pass" && type !== "test:fail") continue;
      const seconds = data.details.duration_ms / 1000;
      last = { model, check: data.name, ok: type === "test:pass", seconds, said: [] };
      rows.push(last);
    }
  }
  return rows.filter(({ ok, said }) => !ok || said.length > 0).map(rowOf);
}

function rowOf({ said, ok, ...row }) {
  const worst = worstIn(said.join("; "));
  const compared = said.length > 3 ? `${said.length} files` : said.join("; ");
  const limit = worst > 0 ? "the test's" : 0;
  return { ...row, ok, weights: "", compared, worst: ok ? worst : Number.NaN, limit, note: "" };
}
