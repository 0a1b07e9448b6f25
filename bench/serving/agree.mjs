// Whether libraries draw the same tokens from the same weights.
import { nameOf } from "./rows.mjs";

/**
 * How long two texts are equal. Where they part, `gaps`: how far the likeliest token is ahead of the second in each
 * library. `apart`: by how much the libraries differ about such gaps before, at most.
 */
function compare(row, other) {
  const [one, two] = [row.greedy, other.greedy];
  const { length } = one.tokens;
  const at = one.tokens.findIndex((token, index) => token !== two.tokens[index]);
  const equal = at < 0 ? length : at;
  const differences = one.gaps.slice(0, equal).map((gap, index) => Math.abs(gap - two.gaps[index]));
  return {
    tokens: length,
    equal,
    apart: Math.max(0, ...differences),
    ...(at < 0 ? {} : { gaps: [one.gaps[at], two.gaps[at]] }),
  };
}

/** Each row beside tinyloom's of the same model and bits. */
export function agreements(rows) {
  const drawn = rows.filter(({ greedy }) => greedy);
  return drawn.flatMap((row) => {
    const first = drawn.find((one) => one.workload === row.workload && one.peer === "tinyloom");
    if (!first || first === row) return [];
    return [{ row: nameOf(row), as: nameOf(first), ...compare(row, first) }];
  });
}
