// Rows of the table of real models: what was compared, the worst difference, and whether that is within its limit.

/** Farthest that f32 may be from transformers: logits, losses of a text, and losses of ten steps of an adapter. */
export const LIMITS = { logits: 1e-3, loss: 1e-4, lora: 1e-4 };
/** Two logits that are closer than this are a tie: rounding may choose. */
export const TIE = 1e-3;
/**
 * Nats per token that a format may cost on dithered weights. int4 has no limit here: the table tells what it
 * costs.
 */
export const COST = { f32: LIMITS.loss, f16: 5e-3, int8: 2e-2, int4: Number.POSITIVE_INFINITY };

/** Written so that a NaN fails. */
const within = (worst, limit) => worst <= limit;

const row = (check, compared, worst, limit, note = "") => ({
  check,
  compared,
  worst,
  limit,
  ok: within(worst, limit),
  note,
});

export function idsRow(check, got, wanted) {
  const most = Math.max(got.length, wanted.length);
  let different = 0;
  for (let i = 0; i < most; i++) different += got[i] !== wanted[i];
  return row(check, `${wanted.length} ids`, different, 0);
}

/** Texts of which ids or decoded text are others. */
export const textsRow = (check, texts, different) => row(check, `${texts} texts`, different, 0);

function likeliest(logits, from, vocabulary) {
  let best = 0;
  for (let k = 1; k < vocabulary; k++) if (logits[from + k] > logits[from + best]) best = k;
  return best;
}

/** Logits of each position, `vocabulary` in a row. */
export function logitsRow(check, got, wanted, vocabulary) {
  if (got.length !== wanted.length) return row(check, `${got.length} of ${wanted.length}`, NaN, 0);
  let worst = 0;
  for (let k = 0; k < wanted.length; k++) {
    const apart = Math.abs(got[k] - wanted[k]);
    if (!(apart <= worst)) worst = apart;
    if (Number.isNaN(worst)) break;
  }
  let equal = 0;
  for (let at = 0; at < wanted.length; at += vocabulary)
    equal += likeliest(got, at, vocabulary) === likeliest(wanted, at, vocabulary);
  const note = `likeliest token equal ${equal}/${wanted.length / vocabulary}`;
  return row(check, `${wanted.length} logits`, worst, LIMITS.logits, note);
}

/** The rise of the loss above transformers' in f32; below it is no fault of a packed format, but one of f32. */
export function lossRow(check, weights, got, wanted, tokens) {
  const rise = got - wanted;
  const worst = weights === "f32" ? Math.abs(rise) : rise;
  const note = `${got.toFixed(5)}, transformers ${wanted.toFixed(5)}`;
  return row(check, `${tokens} tokens`, worst, COST[weights], note);
}

/**
 * Greedy text. Each step of `steps` has transformers' `token`, the `second` likely one, and the `gap` of their logits. Where
 * the texts part at a tie, what follows is of another text and is not compared.
 */
export function greedyRow(check, got, steps) {
  const at = steps.findIndex(({ token }, i) => token !== got[i]);
  if (at < 0) return row(check, `${steps.length} tokens`, 0, TIE, "all equal");
  const { second, gap } = steps[at];
  const worst = got[at] === second ? gap : Number.POSITIVE_INFINITY;
  const note = `token ${at} is ${got[at]} and not ${steps[at].token}: transformers' logits are ${gap.toExponential(1)} apart`;
  return row(check, `${at} tokens`, worst, TIE, note);
}

/**
 * Answers of chats: `prompt`, `tokens` up to the end of the turn, and `pieces`, the text as it came. Of the reference each
 * has `prompt`, `steps` as {@link greedyRow} takes them, with the token that ended it, and its `text`.
 */
export function chatRow(check, answers, wanted, { most, ends }) {
  const rows = wanted.map(({ prompt, steps, text, ended }, i) => {
    const { prompt: own, tokens, pieces } = answers[i] ?? { prompt: [], tokens: [], pieces: [] };
    // An answer that is shorter ended by itself.
    const end = ended && tokens.length === steps.length - 1 ? steps.at(-1).token : ends[0];
    const got = tokens.length < most ? [...tokens, end] : tokens;
    const same = greedyRow("", got, steps);
    const ids = prompt.join() === own.join();
    const streamed = same.worst > 0 || (pieces.join("") === text && got.length === steps.length);
    return ids && streamed ? same : { ...same, worst: Number.POSITIVE_INFINITY };
  });
  const worst = Math.max(...rows.map((one) => one.worst));
  const ties = rows.filter((one) => one.worst > 0).map(({ note }) => note);
  const count = answers.reduce((sum, { tokens }) => sum + tokens.length, 0);
  const stopped = answers.filter(({ tokens }) => tokens.length < most).length;
  const compared = `${answers.length} answers, ${count} tokens; ${stopped} end by themselves`;
  return row(check, compared, worst, TIE, ties.join("; ") || "all equal");
}

/** Answers that were learned by heart. */
export function learnedRow(check, texts, wanted, losses) {
  const different = wanted.filter((text, i) => text !== texts[i]).length;
  const note = `losses ${losses[0]?.toFixed(3)} … ${losses.at(-1)?.toFixed(4)}`;
  return row(check, `${wanted.length} texts`, different, 0, note);
}

/** Answers, as texts or ids in a text, that are to be equal. */
export function equalRow(check, got, wanted) {
  const different = wanted.filter((one, i) => one !== got[i]).length;
  return row(check, `${wanted.length} answers`, different, 0);
}

export function lorasRow(check, got, wanted) {
  const apart = wanted.map((loss, i) => Math.abs(loss - got[i]));
  const worst = apart.some(Number.isNaN) ? NaN : Math.max(...apart);
  const note = `${got[0]?.toFixed(5)} … ${got.at(-1)?.toFixed(5)}`;
  return row(check, `${wanted.length} losses`, worst, LIMITS.lora, note);
}

const number = (value) =>
  value === 0 || !Number.isFinite(value) ? String(value) : value.toExponential(1);
/** In a cell of Markdown. */
const cell = (value) => String(value).replaceAll("|", "\\|").replaceAll("\n", " ");

/** The rows as a table of Markdown. */
export function table(rows) {
  const head = ["model", "weights", "check", "compared", "worst", "limit", "", "note"];
  const lines = rows.map(({ model, weights, check, compared, worst, limit, ok, note }) => [
    model,
    weights,
    check,
    compared,
    number(worst),
    limit === Number.POSITIVE_INFINITY ? "none" : number(limit),
    ok ? "ok" : "FAILED",
    note,
  ]);
  const line = (cells) => `| ${cells.map(cell).join(" | ")} |`;
  return [line(head), line(head.map(() => "---")), ...lines.map(line)].join("\n");
}
