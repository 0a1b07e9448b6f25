// Files of text: bytes that are no UTF-8, tables by their media type, arrays that are none.
import assert from "node:assert/strict";
import { test } from "node:test";
import { BpeTokenizer, ByteTokenizer, Dataset } from "tinyloom";

const bytes = new ByteTokenizer();
const bpe = await BpeTokenizer.train("the world is wide. ".repeat(20), { vocabSize: 270 });
const refused = (...words) => ({
  code: "invalid-options",
  message: new RegExp(words.map((word) => word.replace(/[()[\]{}."]/g, "\\$&")).join(".*")),
});
/** A text with these bytes at a place, in a file. */
const withBytes = (at, wrong, length = 200_000) => {
  const all = new Uint8Array(length).fill(0x61);
  all.set(wrong, at);
  return new File([all], "a.txt");
};
/** It gives its bytes in chunks of that size. */
const inChunks = (file, size) =>
  new ReadableStream({
    async start(controller) {
      const all = new Uint8Array(await file.arrayBuffer());
      for (let at = 0; at < all.length; at += size) controller.enqueue(all.slice(at, at + size));
      controller.close();
    },
  });

test("bytes that are no UTF-8 are refused by their place, wherever they are", async () => {
  for (const [at, wrong] of [
    [69_000, [0xe9]],
    [131_072, [0xe9]],
    [131_071, [0xe9]],
    [131_070, [0xe2, 0x82]],
    [199_999, [0xe9]],
    [70_000, [0x80]],
  ]) {
    const file = withBytes(at, wrong);
    for (const source of [file, inChunks(file, 4096), inChunks(file, 70_001)]) {
      await assert.rejects(
        Dataset.from(source, bpe),
        refused("Dataset.from", `bytes from ${at} on`, "windows-1252"),
      );
    }
  }
  const late = withBytes(69_000, [0xe9]);
  await assert.rejects(BpeTokenizer.train(late, { vocabSize: 270 }), refused("from 69000 on"));
  const raw = await Dataset.from(late, bytes, { validationFraction: 0 });
  assert.equal(raw.tokens, 200_000, "raw bytes serve as they are");
});

test("zero bytes that come late are refused too", async () => {
  for (const at of [69_000, 199_999]) {
    await assert.rejects(
      Dataset.from(inChunks(withBytes(at, [0]), 4096), bpe),
      refused(`byte ${at} is zero`, "utf-16le"),
    );
  }
});

test("characters that lie in two chunks stay whole", async () => {
  const text = "\ufeffhé€\u{1f600}".repeat(9000);
  const wanted = (await Dataset.fromText(text.slice(1), bpe)).hash;
  for (const size of [4095, 70_001]) {
    assert.equal((await Dataset.from(inChunks(new Blob([text]), size), bpe)).hash, wanted);
  }
});

test("the media type says what is between columns", async () => {
  const rows = 'text\tother\n"a, b"\tc\n"d, e"\tf\n';
  const options = { validationFraction: 0 };
  const wanted = (await Dataset.fromDocuments(["a, b", "d, e"], bytes, options)).hash;
  const type = "text/tab-separated-values;charset=utf-8";
  assert.equal((await Dataset.from(new Blob([rows], { type }), bytes, options)).hash, wanted);
  assert.equal((await Dataset.from(new File([rows], "a.tsv"), bytes, options)).hash, wanted);
  const table = new File([rows.replaceAll("\t", ",")], "a.csv", { type });
  assert.equal((await Dataset.from(table, bytes, options)).hash, wanted, "a name comes first");
});

test("a text that only begins as an array is told how it is read", async () => {
  for (const text of ['["a quote", she said.]', '["a quote", she said. And so on']) {
    const file = new File([text], "a.txt");
    await assert.rejects(Dataset.from(file, bytes), refused('format: "text"'));
    assert.ok((await Dataset.from(file, bytes, { format: "text" })).tokens > 0);
  }
});

test("a list of chats in the place of one is told what reads it", async () => {
  const chats = [[{ role: "user", content: "a" }], [{ role: "user", content: "b" }]];
  const error = await Dataset.fromConversations([chats], bytes, {
    template: "{{ messages }}",
  }).catch((e) => e);
  assert.match(error.message, /one JSON array, or JSONL/);
  assert.doesNotMatch(error.message, /JSON\.parse/);
});

test("the tokenizer of bytes checks its options as the others do", () => {
  for (const tokenizer of [bytes, bpe]) {
    const ids = tokenizer.encode("a", { addSpecialTokens: false, specialTokens: "text" });
    assert.equal(tokenizer.decode(ids, { skipSpecialTokens: true }), "a");
    for (const [work, word] of [
      [() => tokenizer.encode("a", { specialTokens: "none" }), "specialTokens"],
      [() => tokenizer.encode("a", { addSpecial: true }), "addSpecial"],
      [() => tokenizer.decode(ids, { skipSpecialTokens: 1 }), "skipSpecialTokens"],
      [() => tokenizer.decoder({ skip: true }), "skip"],
    ]) {
      assert.throws(work, refused(word));
    }
  }
});
