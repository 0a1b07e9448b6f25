// How far the kernels that selection picks are behind the fastest measured beside them.

const sum = (rows) => rows.reduce((total, row) => total + row.microseconds, 0);
const fastest = (rows) =>
  rows.reduce((best, row) => (row.microseconds < best.microseconds ? row : best));

/** Rows in groups of which selection picks one, by a text. */
function groups(rows, key) {
  const found = new Map();
  for (const row of rows) {
    const text = key(row);
    if (text !== undefined) found.set(text, [...(found.get(text) ?? []), row]);
  }
  return found;
}

const shape = ({ heads, kvHeads, headDim, tokens }) =>
  `${heads}/${kvHeads} x ${headDim}, ${tokens}`;

/** Alternatives of one kernel: all rows with the same work. */
function alone(row) {
  if (row.m !== undefined) return `${row.kernel} ${row.m}x${row.n}x${row.k}`;
  if (row.kernel === "attention_forward") return `forward ${shape(row)}`;
  // The forms of a cache are the user's choice.
  if (row.kernel === "attention_decode")
    return `decode ${shape(row)}, ${row.variant.split(",")[0]}`;
  return undefined;
}

const isBackward = ({ kernel }) => /^attention_backward_(query|key_value)$/.test(kernel);
/** The kernels of queries and of keys and values as a pair. */
function pair(what, rows) {
  const both = [...groups(rows, (row) => row.kernel).values()];
  const picked = rows.filter((row) => row.picked);
  return { what, behind: sum(picked) / sum(both.map(fastest)) - 1, note: "" };
}

/**
 * Every pick among the results of a suite, the one farthest behind first.
 *
 * @returns rows `{ what, behind, note }`; `behind` is a share of the fastest's time.
 */
export function picks(results) {
  const single = [...groups(results, alone)].map(([what, rows]) => {
    const [picked] = rows.filter((row) => row.picked);
    const best = fastest(rows);
    const note = picked === best ? "" : `the fastest: ${best.variant}`;
    return { what, behind: picked.microseconds / best.microseconds - 1, note };
  });
  const backward = groups(results.filter(isBackward), (row) => `backward ${shape(row)}`);
  const pairs = [...backward].map(([what, rows]) => pair(what, rows));
  return [...single, ...pairs].sort((a, b) => b.behind - a.behind);
}
