/** Rows of CSV (RFC 4180): a quoted field may hold delimiters, line ends and doubled quotes. */
export function* csvRows(text: string, delimiter: string): Generator<string[], void, undefined> {
  let row: string[] = [];
  for (let at = 0; at < text.length; ) {
    const [field, next] = text[at] === '"' ? quoted(text, at) : plain(text, at, delimiter);
    row.push(field);
    if (text[next] === delimiter && next + 1 < text.length) {
      at = next + 1;
      continue;
    }
    if (text[next] === delimiter) row.push("");
    if (row.length > 1 || row[0] !== "") yield row;
    row = [];
    at = next + (text.startsWith("\r\n", next) ? 2 : 1);
  }
}

/** A field from its opening quote on, and the place after it. Without an end it has all that is left. */
function quoted(text: string, begin: number): [field: string, next: number] {
  let field = "";
  for (let at = begin + 1; ; ) {
    const end = text.indexOf('"', at);
    if (end < 0) return [field + text.slice(at), text.length];
    field += text.slice(at, end);
    if (text[end + 1] !== '"') return [field, end + 1];
    field += '"';
    at = end + 2;
  }
}

function plain(text: string, begin: number, delimiter: string): [field: string, next: number] {
  let next = begin;
  while (next < text.length && text[next] !== delimiter && text[next] !== "\n") next++;
  return [text.slice(begin, next).replace(/\r$/, ""), next];
}
