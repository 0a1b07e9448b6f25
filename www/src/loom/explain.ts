/** What is chosen on the loom, in words. */
import type { Place } from "./drawing.ts";
import { headAt } from "./pass.ts";
import { first } from "./tiles.ts";
import { named, spelt, type Weave } from "./weave.ts";

/** What the card says. */
export interface Explained {
  readonly title: string;
  readonly lines: readonly string[];
  /** The heads whose threads the card speaks of, by `headAt`. */
  readonly heads: readonly number[];
}

/** A share that is worth a word. */
const MUCH = 0.35;

export const percent = (share: number): string => `${Math.round(100 * share)}\u00a0%`;

const ORDINAL = new Intl.PluralRules("en", { type: "ordinal" });
const ENDS: { readonly [rule: string]: string } = { one: "st", two: "nd", few: "rd", other: "th" };

export const ordinal = (count: number): string => `${count}${ENDS[ORDINAL.select(count)]}`;

/** Words joined by commas and an "and". */
const joined = new Intl.ListFormat("en", { type: "conjunction" });

/** A letter with its place. After the mark places count from there: it is the model's own answer. */
function placed({ tokens, given, answers }: Weave, at: number): string {
  const token = tokens[at]!;
  if (answers && at === given - 1) return "the mark after the word";
  if (answers && at >= given) return `${named(token)} of its own answer`;
  return `the ${ordinal(at + 1)} letter, ${named(token)}`;
}

/** Of a layer, what each head that is not cut looks at most at a letter. */
function looks(weave: Weave, layer: number, at: number, cut: ReadonlySet<number>) {
  return weave.shares[layer]!.flatMap((rows, head) => {
    if (cut.has(headAt(weave.shape.heads, layer, head))) return [];
    const row = rows[at]!;
    let from = 0;
    for (let one = 1; one < row.length; one++) if (row[one]! > row[from]!) from = one;
    return [{ head, from, share: row[from]! }];
  });
}

type Look = ReturnType<typeof looks>[0];

/** What a layer's heads look at, in a sentence. */
function sentenceOf(weave: Weave, layer: number, at: number, found: readonly Look[]): string {
  const name = `layer ${layer + 1}`;
  if (found.length === 0) return `All threads of ${name} are cut.`;
  const clear = found.filter(({ share }) => share >= MUCH);
  const [one] = clear;
  if (!one) return `Layer ${layer + 1}: its heads look here and there.`;
  if (clear.length === found.length && clear.every(({ from }) => from === one.from)) {
    const shares = clear.map(({ share }) => share);
    const [least, most] = [Math.min(...shares), Math.max(...shares)].map((share) =>
      Math.round(100 * share),
    );
    const range = least === most ? `${most} %` : `${least} to ${most} %`;
    const who = found.length === 1 ? `The one head of ${name} reads` : `All heads of ${name} read`;
    return `${who} ${placed(weave, one.from)} (${range}).`;
  }
  const places = [...new Set(clear.map(({ from }) => from))];
  const parts = places.map((from, index) => {
    const heads = clear.filter((look) => look.from === from).map(({ head }) => String(head + 1));
    const who = `${heads.length > 1 ? "heads" : "head"} ${joined.format(heads)}`;
    const reads = index > 0 ? "" : heads.length > 1 ? " read" : " reads";
    return `${who}${reads} ${from === at ? "itself" : placed(weave, from)}`;
  });
  const rest = clear.length < found.length ? "; the others look here and there" : "";
  return `Layer ${layer + 1}: ${parts.join("; ")}${rest}.`;
}

/** What the model says at a letter. */
function saying(weave: Weave, at: number): string {
  const { token, share } = weave.guesses[at]!;
  const sure = `${named(token)}, ${percent(share)} sure`;
  if (!weave.answers)
    return `After “${spelt(weave.tokens.slice(Math.max(0, at - 7), at + 1))}” it says ${sure}`;
  if (at < weave.given - 1) return `It is still reading: ${placed(weave, at)}`;
  if (at === weave.given - 1) return `First it says ${sure}`;
  return `After “${spelt(weave.tokens.slice(weave.given, at + 1))}” it says ${sure}`;
}

/** What it would say after each layer but the last. */
function earlier(weave: Weave, at: number): string[] {
  if (at < first(weave)) return [];
  const parts = weave.lens.slice(1).map((row, layer) => {
    const { token, share } = row[at]!;
    return `after layer ${layer + 1} alone it would say ${named(token)} (${percent(share)})`;
  });
  if (parts.length === 0) return [];
  const all = joined.format(parts);
  return [`${all.charAt(0).toUpperCase()}${all.slice(1)}.`];
}

/** The letter that tells most: where a layer's heads are surest of another letter than the one before. */
export function telling(weave: Weave): number {
  // The first letters of a text have little to look at.
  const start = Math.min(weave.answers ? first(weave) : weave.given - 1, weave.tokens.length - 1);
  let [best, most] = [start, -1];
  for (let at = start; at < weave.tokens.length; at++) {
    const sums = weave.shares.map((heads) =>
      heads.reduce((sum, rows) => sum + Math.max(...rows[at]!.subarray(0, Math.max(1, at - 2))), 0),
    );
    const sum = Math.max(...sums);
    if (sum > most + 0.05) [best, most] = [at, sum];
  }
  return best;
}

export function explain(weave: Weave, place: Place, cut: ReadonlySet<number>): Explained {
  const { at } = place;
  const { heads, layers } = weave.shape;
  if (place.head !== undefined && place.layer !== undefined && place.from !== undefined) {
    const { head, layer, from } = place;
    const share = weave.shares[layer]![head]![at]![from]!;
    const what = from === at ? "itself" : placed(weave, from);
    return {
      title: `Head ${head + 1} of layer ${layer + 1}`,
      lines: [`At ${placed(weave, at)}, it reads ${what}: ${percent(share)} of its look.`],
      heads: [headAt(heads, layer, head)],
    };
  }
  const found = Array.from({ length: layers }, (_, layer) => looks(weave, layer, at, cut));
  const sums = found.map((all) =>
    all.reduce((sum, { share }) => sum + (share >= MUCH ? share : 0), 0),
  );
  // Of equal layers the last one, which speaks.
  const main = sums.lastIndexOf(Math.max(...sums));
  const clear = found[main]!.filter(({ share }) => share >= MUCH);
  return {
    title: `${saying(weave, at)}.`,
    lines: [...found.map((all, layer) => sentenceOf(weave, layer, at, all)), ...earlier(weave, at)],
    heads: (clear.length > 0 ? clear : found[main]!).map(({ head }) => headAt(heads, main, head)),
  };
}
