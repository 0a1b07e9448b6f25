/** Files that are no text, told by their first bytes. */

import { invalid } from "../options.js";

/** What a file begins with, what it is, and what to do with it. */
type Signature = readonly [begin: string, kind: string, cure: string];

const JSONL = 'lines=True, orient="records"';
const UNPACK = "unpack it, and give the file that is in it";
const decode = (encoding: string) =>
  `give file.stream().pipeThrough(new TextDecoderStream("${encoding}"))`;

/** In Latin-1, a character for each byte. The first that fits counts. */
const SIGNATURES: readonly Signature[] = [
  [
    "PAR1",
    "Parquet",
    `make JSONL of it, in Python pandas.read_parquet(file).to_json("rows.jsonl", ${JSONL})`,
  ],
  [
    "ARROW1",
    "Arrow",
    `make JSONL of it, in Python pandas.read_feather(file).to_json("rows.jsonl", ${JSONL})`,
  ],
  [
    "\xff\xff\xff\xff",
    "Arrow",
    'make JSONL of it, in Python datasets.Dataset.from_file(file).to_json("rows.jsonl")',
  ],
  [
    "\x1f\x8b",
    "gzip",
    'give file.stream().pipeThrough(new DecompressionStream("gzip")), and the format if that is CSV',
  ],
  ["PK\x03\x04", "a zip archive, as documents of offices are too", UNPACK],
  ["PK\x05\x06", "an empty zip archive", "give the file that it should have"],
  ["\x28\xb5\x2f\xfd", "compressed by zstd", UNPACK],
  ["BZh", "compressed by bzip2", UNPACK],
  ["\xfd7zXZ\x00", "compressed by xz", UNPACK],
  ["7z\xbc\xaf\x27\x1c", "a 7z archive", UNPACK],
  ["SQLite format 3\x00", "an SQLite database", "write its rows to a CSV file"],
  ["%PDF-", "a PDF", "take the text out of it, in Python with pypdf"],
  [
    "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
    "a document of an office program",
    "save it as plain text or CSV",
  ],
  ["GGUF", "a model, in GGUF", "give a text"],
  [
    "version https://git-lfs.github.com/spec/",
    "no data, but Git LFS's note of where they are",
    "fetch the file with git lfs pull, or from the address of its download",
  ],
  ["\xff\xfe\x00\x00", "text in UTF-32", "save it as UTF-8"],
  ["\x00\x00\xfe\xff", "text in UTF-32", "save it as UTF-8"],
  ["\xff\xfe", "text in UTF-16", decode("utf-16le")],
  ["\xfe\xff", "text in UTF-16", decode("utf-16be")],
];

/**
 * Refuses what is no text.
 *
 * @param ended - whether these are all bytes of the file.
 * @param raw - whether the bytes serve as they are: then only what is known to be something else is refused.
 */
export function refuseBinary(
  where: string,
  name: string,
  head: Uint8Array,
  ended: boolean,
  raw: boolean,
): void {
  const refuse = (what: string, cure: string) => {
    const bytes = raw ? '; format: "text" takes its bytes as they are' : "";
    return invalid(`${where}: ${name} is ${what}, and no text in UTF-8: ${cure}${bytes}`);
  };
  for (const [begin, kind, cure] of SIGNATURES) {
    if (begins(head, begin)) throw refuse(kind, cure);
  }
  if (raw) return;
  const zero = head.indexOf(0);
  if (zero >= 0) {
    const encoding = wide(head);
    if (encoding) throw refuse("text in UTF-16 without a mark", decode(encoding));
    const cure = "give a text; a file that was not written to its end may have zeros";
    throw refuse(`binary, with a zero at byte ${zero}`, cure);
  }
  if (!isUtf8(head, ended)) {
    throw refuse(
      "in another encoding",
      `${decode("windows-1252")}, or with the name of its encoding`,
    );
  }
}

function begins(head: Uint8Array, begin: string): boolean {
  for (let i = 0; i < begin.length; i++) if (head[i] !== begin.charCodeAt(i)) return false;
  return true;
}

/** UTF-16 of mostly Latin letters has a zero in every other byte. */
function wide(head: Uint8Array): string | undefined {
  let [even, odd] = [0, 0];
  head.forEach((byte, at) => {
    if (byte !== 0) return;
    if (at % 2 === 0) even += 1;
    else odd += 1;
  });
  const many = head.length / 4;
  if (odd > many && even < odd / 8) return "utf-16le";
  return even > many && odd < even / 8 ? "utf-16be" : undefined;
}

function isUtf8(head: Uint8Array, ended: boolean): boolean {
  try {
    new TextDecoder("utf-8", { fatal: true }).decode(head, { stream: !ended });
    return true;
  } catch {
    return false;
  }
}
