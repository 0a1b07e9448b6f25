// Files are what their bytes say: which forms are read, and how the others are refused.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { closeSync, mkdirSync, openSync, rmSync, writeSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { BpeTokenizer, ByteTokenizer, Dataset } from "tinyloom";
import { root, target } from "../../scripts/lib.mjs";
import { documentsOf } from "./real-tokenizers.mjs";

const bytes = new ByteTokenizer();
/** As `ByteTokenizer`, but a file has to be text for it. */
const letters = { vocabSize: 256, encode: (text) => [...new TextEncoder().encode(text)] };
const all = { validationFraction: 0 };
const TEXTS = ['a "b"', "c\nd", "é, 東"];
const latin = (string) => Uint8Array.from(string, (one) => one.charCodeAt(0));
const utf16 = (string, big) => {
  const view = new DataView(new ArrayBuffer(string.length * 2));
  for (let i = 0; i < string.length; i++) view.setUint16(i * 2, string.charCodeAt(i), !big);
  return new Uint8Array(view.buffer);
};
const streamOf = (...chunks) =>
  new ReadableStream({
    start(controller) {
      for (const chunk of chunks) controller.enqueue(chunk);
      controller.close();
    },
  });
/** The texts of a dataset's documents. */
async function texts(source, more) {
  const made = await Dataset.from(source, bytes, { ...all, ...more });
  return (await documentsOf(made, made.documents)).map(({ tokens }) => bytes.decode(tokens));
}
/** What a call is refused with, which has these words. */
async function refused(call, ...words) {
  const error = await call.then(
    () => undefined,
    (thrown) => thrown,
  );
  assert.equal(error?.code, "invalid-options", `not refused: ${words}`);
  for (const word of words) assert.ok(error.message.includes(word), `${word}: ${error.message}`);
  return error.message;
}

test("rows are read whatever the file is called", async () => {
  const rows = TEXTS.map((text, id) => ({ id, text }));
  const lines = rows.map((row) => JSON.stringify(row));
  const forms = {
    jsonl: `${lines.join("\n")}\n`,
    "jsonl with CR LF, blank lines and a mark": `\ufeff\r\n${lines.join("\r\n\r\n")}\r\n`,
    "array in one line": JSON.stringify(rows),
    "array with a line each": `[\n${lines.join(",\n")}\n]\n`,
    "indented array": JSON.stringify(rows, null, 2),
    "array of texts": JSON.stringify(TEXTS),
    "indented array of texts": JSON.stringify(TEXTS, null, 1),
  };
  for (const [form, content] of Object.entries(forms)) {
    for (const name of ["", "a", "a.json", "a.jsonl", "a.txt", "a.csv"]) {
      const source = name ? new File([content], name) : new Blob([content]);
      assert.deepEqual(await texts(source), TEXTS, `${form} as ${name || "a Blob"}`);
    }
    for (const size of [1, 3, 100]) {
      const raw = new TextEncoder().encode(content);
      const chunks = Array.from({ length: Math.ceil(raw.length / size) }, (_, i) =>
        raw.subarray(i * size, (i + 1) * size),
      );
      assert.deepEqual(await texts(streamOf(...chunks)), TEXTS, `${form} in bytes by ${size}`);
      const parts = content.match(new RegExp(`[^]{1,${size}}`, "g"));
      assert.deepEqual(await texts(streamOf(...parts)), TEXTS, `${form} in texts by ${size}`);
    }
  }
  const csv = `\ufeff"id",text\r\n0,"a ""b"""\r\n,\r\n\r\n1,"c\nd"\r\n2,"é, 東"`;
  assert.deepEqual(await texts(new File([csv], "a.csv")), TEXTS);
  assert.deepEqual(await texts(streamOf(csv), { format: "csv" }), TEXTS, "a mark in a string");
  const marked = streamOf("\ufeff", "text\na\ufeffb\n");
  assert.deepEqual(await texts(marked, { format: "csv" }), ["a\ufeffb"], "before the first name");
  assert.deepEqual(await texts(new Blob([csv], { type: "text/csv" })), TEXTS);
  const wide = new Blob([`[${"[1],".repeat(20_000)}[2]]`]);
  await refused(texts(wide, { format: "json" }), "element 0 has no text");
  const long = JSON.stringify({ text: "x".repeat(200_000) });
  assert.deepEqual(await texts(new Blob([long, "\n", long])), [
    "x".repeat(200_000),
    "x".repeat(200_000),
  ]);
});

test("a text that looks a little like rows stays a text", async () => {
  for (const text of [
    "[Verse 1]\nThe boat is old.",
    "[[Boat]] is a page.\n[[River]] too.",
    "[1] First note.\n[2] Second note.",
    "[1]\n",
    '["Hello" she said.]',
    "{ int x; }\n{ int y; }",
    '{"a" is no row}',
    "{}{}",
    '"quoted"\n"again"',
    "id,text\n1,a\n",
  ]) {
    for (const source of [new Blob([text]), new File([text], "a.txt"), streamOf(text)]) {
      const made = await Dataset.from(source, bytes, all);
      assert.equal(made.hash, (await Dataset.fromText(text, bytes, all)).hash, text);
    }
  }
  const rows = '{"text":"a"}\n{"text":"b"}\n';
  const plain = await Dataset.fromText(rows, bytes, all);
  for (const made of [
    Dataset.from(new File([rows], "a.jsonl"), bytes, { ...all, format: "text" }),
    Dataset.fromText(new File([rows], "a.jsonl"), bytes, all),
    Dataset.fromText(new File([rows], "a.jsonl"), letters, all),
  ]) {
    assert.equal((await made).hash, plain.hash, "as one text, where that is what is asked for");
  }
});

test("what is no text is refused by name, with what to do", async () => {
  const kinds = [
    [latin("PAR1\x15\x04"), "Parquet", "JSONL", "read_parquet"],
    [latin("ARROW1\0\0"), "Arrow", "read_feather"],
    [latin("\xff\xff\xff\xff\x10\0"), "Arrow", "from_file"],
    [gzipSync('{"text":"a"}\n'), "gzip", "DecompressionStream"],
    [latin("PK\x03\x04\x14"), "zip", "unpack"],
    [latin("PK\x05\x06\0"), "empty zip"],
    [latin("\x28\xb5\x2f\xfd\x04"), "zstd"],
    [latin("BZh91AY"), "bzip2"],
    [latin("\xfd7zXZ\0\0"), "xz"],
    [latin("7z\xbc\xaf\x27\x1c\0"), "7z"],
    [latin("SQLite format 3\0"), "SQLite", "CSV"],
    [latin("%PDF-1.7\n"), "PDF"],
    [latin("\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"), "office"],
    [latin("GGUF\x03\0\0\0"), "GGUF"],
    [
      latin("version https://git-lfs.github.com/spec/v1\noid sha256:4d\n"),
      "Git LFS",
      "git lfs pull",
    ],
    [latin("\xff\xfe\0\0a\0\0\0"), "UTF-32"],
    [utf16("\ufeffid,text\n1,a\n"), "UTF-16", "utf-16le"],
    [utf16("\ufeffid,text\n1,a\n", true), "UTF-16", "utf-16be"],
  ];
  for (const [content, kind, ...words] of kinds) {
    const source = (name) => new File([content], name);
    for (const name of ["rows.jsonl", "rows.parquet", "rows.csv", "a.txt"]) {
      const said = [`${name} is`, kind, ...words];
      const short = await refused(
        Dataset.from(source(name), letters, all),
        "Dataset.from",
        ...said,
      );
      assert.ok(!short.includes('format: "text"'), short);
      const raw = await refused(Dataset.from(source(name), bytes, all), ...said);
      assert.ok(raw.includes('format: "text" takes its bytes'), raw);
    }
    const chats = Dataset.fromConversations(source("chats.jsonl"), letters, {
      template: "{{ messages }}",
    });
    await refused(chats, "Dataset.fromConversations", kind, ...words);
    await refused(Dataset.fromText(source("a.txt"), letters), "Dataset.fromText", kind, ...words);
    const train = BpeTokenizer.train(source("a.txt"), { vocabSize: 300 });
    await refused(train, "BpeTokenizer.train", kind, ...words);
    // A byte at a time, and what is asked for in words.
    await refused(
      Dataset.from(streamOf(...[...content].map((one) => Uint8Array.of(one))), letters),
      kind,
    );
    const own = await Dataset.from(source("a.txt"), bytes, { ...all, format: "text" });
    assert.equal(own.tokens, content.length, "the bytes as they are");
    assert.equal((await Dataset.fromText(source("a.txt"), bytes, all)).tokens, content.length);
  }
  // The cures are true.
  const unzipped = new Blob([gzipSync('{"text":"a"}\n')])
    .stream()
    .pipeThrough(new DecompressionStream("gzip"));
  assert.deepEqual(await texts(unzipped), ["a"]);
  const wide = new Blob([utf16('\ufeff["a","b"]')])
    .stream()
    .pipeThrough(new TextDecoderStream("utf-16le"));
  assert.deepEqual(await texts(wide), ["a", "b"]);
});

test("what is refused is not read on", async () => {
  for (const [content, call] of [
    ["PAR1", (stream) => Dataset.from(stream, letters)],
    ["a text\n", (stream) => Dataset.from(stream, bytes, { column: "text" })],
    ['{"text":1}\n', (stream) => Dataset.from(stream, bytes)],
    ["a,b\n", (stream) => Dataset.from(stream, bytes, { format: "csv" })],
    ['{\n"rows": [', (stream) => Dataset.fromConversations(stream, bytes, { template: "{{ 1 }}" })],
  ]) {
    let cancelled = 0;
    const source = new ReadableStream(
      {
        pull: (controller) => controller.enqueue(latin(content.padEnd(1 << 16))),
        cancel: () => {
          cancelled += 1;
        },
      },
      { highWaterMark: 0 },
    );
    await refused(call(source));
    assert.equal(cancelled, 1, content);
  }
});

test("a web page in the place of a file is refused", async () => {
  const page = "\n<!DOCTYPE html>\n<html><body>rows.jsonl</body></html>\n";
  for (const name of ["rows.jsonl", "rows.csv", "rows.json", "notes.txt"]) {
    const source = () => new File([page], name);
    await refused(Dataset.from(source(), bytes, all), `${name} is a web page`, "resolve");
    const chats = Dataset.fromConversations(source(), bytes, { template: "{{ messages }}" });
    await refused(chats, `${name} is a web page`);
    assert.ok((await Dataset.from(source(), bytes, { ...all, format: "text" })).tokens > 0);
  }
  for (const source of [new Blob([page]), new File([page], "page.html")]) {
    assert.equal((await Dataset.from(source, bytes, all)).tokens, page.length, "as a text");
  }
});

test("other bytes are no text, except for a ByteTokenizer", async () => {
  for (const [content, ...words] of [
    [new Uint8Array(1000), "zero at byte 0", "not written to its end"],
    [latin("abc\0def"), "zero at byte 3"],
    [utf16("a plain text without a mark"), "UTF-16 without a mark", "utf-16le"],
    [utf16("a plain text without a mark", true), "UTF-16 without a mark", "utf-16be"],
    [latin("caf\xe9 au lait"), "another encoding", "windows-1252"],
    [latin("a\xe9"), "another encoding"],
  ]) {
    const source = () => new File([content], "a.txt");
    await refused(Dataset.from(source(), letters, all), "a.txt", ...words);
    const taken = await Dataset.from(source(), bytes, all);
    assert.equal(taken.tokens, content.length);
  }
  // A character that is cut where the look ends is none that is wrong.
  const edge = `${"x".repeat(65_535)}é${"y".repeat(100)}`;
  assert.equal((await Dataset.from(new Blob([edge]), letters, all)).tokens, 65_637);
});

test("rows that lack what is read, and files that are one object or not whole", async () => {
  const from = (content, name = "a.json", more = {}) =>
    Dataset.from(new File([content], name), letters, { ...all, ...more });
  await refused(from('{\n "data": [{"text": "a"}]\n}'), "one JSON object", '"data"', "JSON array");
  await refused(from('{"data": [{"text": "a"}]}'), "line 1", "data has the rows");
  await refused(from('[{"text":"a"},{"body":"b"}]'), "element 1", "set column to", "body");
  await refused(from('[{"text":"a"},{"text":null}]'), "element 1", "text is null");
  await refused(from('["a",{"prompt":"a","completion":"b"}]'), "element 1 is a prompt");
  await refused(from('["a","b"]', "a.json", { column: "body" }), "element 0", '"body"');
  await refused(from('["a","b"'), "has no end", "not whole");
  await refused(from('["a","b"] ["c"]'), "after the JSON array, of 2 elements");
  await refused(from('["a",,"b"]'), "element 1", "empty");
  await refused(from('["a",]'), "element 1", "empty");
  await refused(from('["a",b]'), "element 1", "not JSON");
  await refused(from('["a"}'), "element 0", "not JSON");
  await refused(from("rows"), "no JSON array");
  await refused(from(" "), "no JSON array");
  await refused(from('[{"role":"user","content":"a"}]'), "Dataset.fromConversations");
  await refused(
    from('[[{"role":"user","content":"a"}]]'),
    "element 0",
    "Dataset.fromConversations",
  );
  await refused(from('[{"conversations":[{"from":"human","value":"a"}]}]'), "fromConversations");
  await refused(
    from('[{"instruction":"a","input":"","output":"b"}]'),
    "Alpaca",
    "fromConversations",
  );
  await refused(from('[{"prompt":"a","chosen":"b","rejected":"c"}]'), "chosen and rejected");
  await refused(from("id,body\n1,a\n", "a.csv"), '"id", "body"', 'not "text"');
  await refused(from("id;text\n1;a\n", "a.csv"), 'set delimiter to ";"');
  await refused(from("id\ttext\n1\ta\n", "a.csv"), 'set delimiter to "\\t"');
  await refused(from("id,text\n1\n", "a.csv"), "row 2 has 1 columns", '"text" is 2');
  await refused(from("a,b\n", "a", { column: "b" }), "column", "read as one text", "format");
  await refused(from("a;b\n", "a", { delimiter: ";" }), "delimiter", "format");
  await refused(from("a", "a", { format: "xml" }), '"json"');
  const error = await from("[]").catch((thrown) => thrown);
  assert.equal(error.code, "invalid-tokens", "an empty array has no text");
});

test("a JSON array that is larger than memory is read", async (t) => {
  const folder = join(target, "text-files");
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const path = join(folder, "rows.json");
  const file = openSync(path, "w");
  const row = JSON.stringify({
    id: 1,
    text: 'The river \\ "carries" ] a } quiet town. '.repeat(2000),
  });
  const count = 1200;
  for (let i = 0; i < count; i++) writeSync(file, `${i ? ",\n" : "["}${row}`);
  writeSync(file, "]");
  closeSync(file);
  const script = `
    import { pathToFileURL } from "node:url";
    import { ByteTokenizer, Dataset } from "tinyloom";
    const { documents, tokens } = await Dataset.from(pathToFileURL(${JSON.stringify(path)}), new ByteTokenizer());
    console.log(JSON.stringify([documents, tokens]));`;
  const args = ["--max-old-space-size=48", "--input-type=module", "-e", script];
  const { stdout, stderr, status } = spawnSync(process.execPath, args, {
    cwd: root,
    encoding: "utf8",
  });
  rmSync(folder, { recursive: true, force: true });
  assert.equal(status, 0, stderr.slice(-2000));
  assert.deepEqual(JSON.parse(stdout), [1080, count * JSON.parse(row).text.length]);
  t.diagnostic(`${Math.round((count * row.length) / 1e6)} MB with a heap of 48 MB`);
});
