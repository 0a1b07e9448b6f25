// What the tasks of bench/align found, as tables: of the run's end, and of the documents.
import { markdown } from "../figures/markdown.mjs";

const percent = (share) => `${(100 * share).toFixed(1).replace(/\.0$/, "")} %`;
const number = (value, digits) => value.toFixed(digits).replace("-", "−");
const change = (show, before, after) => `${show(before)} → ${show(after)}`;

/** Seeds in rows. The points of the curve are those of all seeds. */
function sums(results) {
  const points = results[0].curve.slice(1).map(({ step }) => String(step));
  const ends = (curve, of) => change(of, curve[0], curve.at(-1));
  return {
    heads: [
      "seed",
      "before",
      ...points.map((step, i) => (i === 0 ? `after ${step} updates` : step)),
      "as many supervised steps instead",
      "greedy, before and after",
    ],
    rows: results.map(({ seed, curve, control }) => [
      seed,
      ...curve.map(({ sampled }) => percent(sampled)),
      percent(control.sampled),
      ends(curve, ({ greedy }) => percent(greedy)),
    ]),
  };
}

function kinds(results) {
  return {
    heads: [
      "seed",
      "large copies",
      "copies of either kind",
      "log-probability of large copies",
      "divergence, nats a text",
    ],
    rows: results.map(({ seed, before, after }) => {
      const both = (name, show) => change(show, before[name], after[name]);
      const two = (value) => number(value, 2);
      return [
        seed,
        both("preferred", percent),
        both("copies", percent),
        both("logprob", two),
        both("divergence", two),
      ];
    }),
  };
}

function chain(results) {
  const best = ({ loss, rate }) => `${number(loss, 3)} (${rate})`;
  return {
    heads: ["seed", "teacher", "student alone (rate)", "beside the teacher (rate)"],
    rows: results.map(({ seed, teacher, alone, distilled }) => [
      seed,
      number(teacher, 3),
      best(alone),
      best(distilled),
    ]),
  };
}

function speed({ pairs, grpo }) {
  const times = ({ median, quartiles }, digits) =>
    `${number(median, digits)} (${quartiles.map((value) => number(value, digits)).join(" to ")})`;
  const rows = pairs.map(({ names, rounds, first, second, ratio }) => [
    names.join(", "),
    rounds,
    times(first, 2),
    times(second, 2),
    times(ratio, 3),
  ]);
  const { group, tokens, secondsPerUpdate, generation } = grpo;
  const note =
    `An update of GRPO with ${group} × ${tokens} tokens takes ${times(secondsPerUpdate, 3)} seconds, of which the texts ` +
    `take ${percent(generation)}.`;
  return { heads: ["in turns", "rounds", "the first, ms", "the second, ms", "ratio"], rows, note };
}

/** A task's results as a table. */
export function alignTable(name, results) {
  const { heads, rows, note } = ALIGN_TABLES[name](results);
  return [markdown(heads, rows), note].filter(Boolean).join("\n\n");
}

const ALIGN_TABLES = { sums, kinds, chain, speed };
