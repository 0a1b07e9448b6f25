/**
 * Who got furthest: runs that learn the same are ranked, those of a task by right answers, those of a text by the loss on
 * what training never sees.
 */
import { whole } from "./dom.ts";
import { rightOf } from "./loom/ask.ts";
import type { Track } from "./loom/track.ts";
import type { Kept, KeptScore } from "./run-store.ts";
import type { RunSettings } from "./settings.ts";
import { shapeOf } from "./shape.ts";

/** How far a run has come. */
export interface Reached {
  /** What it learns: runs of one kind are ranked. */
  readonly kind: string;
  /** The more, the further; undefined where nothing is known. */
  readonly merit: number | undefined;
  readonly said: string;
}

const UNKNOWN = { merit: undefined, said: "–" };

/** Of a task: right answers to problems that training never sees. */
const byAnswers = (kind: string, { right, of }: { right: number; of: number }, step: number) => ({
  kind,
  merit: right / of,
  said: `${right} of ${of} right at step ${whole(step)}`,
});

/** Of a text. */
const byLoss = (kind: string, loss: number | undefined): Reached =>
  loss === undefined
    ? { kind, ...UNKNOWN }
    : { kind, merit: -loss, said: `validation loss ${loss.toFixed(3)}` };

/**
 * How far a run of the list has come. Losses of texts are comparable where text and vocabulary are the same; the built-in
 * stories are alike whatever their seed.
 *
 * @param score - of its newest exam; runs of before there were such a figure have none.
 * @param loss - the newest validation loss, in nats per token.
 */
export function reachedBy(
  kept: Pick<Kept, "settings" | "text"> | undefined,
  score: KeptScore | undefined,
  loss: number | undefined,
): Reached {
  if (!kept) return { kind: "", ...UNKNOWN };
  const { text, settings } = kept;
  if (text.task) {
    return score ? byAnswers(text.task, score, score.step) : { kind: text.task, ...UNKNOWN };
  }
  const words = settings.config.vocab_size ?? 256;
  return byLoss(`${text.stories ? "stories" : text.hash} in ${words} words`, loss);
}

/** How far a run on the loom had come by a step, with the heads cut that `key` names. */
export function reachedOn(track: Track, step: number, key: string): Reached {
  const { name, task } = track;
  if (task) {
    const asked = track.asked(step, key);
    if (!asked) return { kind: name, merit: undefined, said: "not asked yet" };
    const { right } = asked.marks;
    const score = { right: rightOf(asked.marks), of: right.length };
    return byAnswers(name, score, asked.snapshot.step);
  }
  return byLoss(name, track.validations.findLast(([one]) => one <= step)?.[1]);
}

const ENDINGS: { readonly [rule in Intl.LDMLPluralRule]?: string } = {
  one: "st",
  two: "nd",
  few: "rd",
};
const ordinal = new Intl.PluralRules("en", { type: "ordinal" });

/** Figure of each, with its place among those of its kind if there are others; equals share a place. */
export function rankingOf(all: readonly Reached[]): string[] {
  return all.map(({ kind, merit, said }) => {
    const merits = all.flatMap((one) =>
      one.kind === kind && one.merit !== undefined ? [one.merit] : [],
    );
    if (merit === undefined || merits.length < 2) return said;
    const place = 1 + merits.filter((one) => one > merit).length;
    return `${place}${ENDINGS[ordinal.select(place)] ?? "th"} of ${merits.length}: ${said}`;
  });
}

/** Numbers of all in order: kinds as they come, in each who got furthest first, and last who has no figure. */
export function furthestFirst(all: readonly Reached[]): number[] {
  const kinds = [...new Set(all.map(({ kind }) => kind))];
  const meritOf = (at: number) => all[at]!.merit ?? Number.NEGATIVE_INFINITY;
  return kinds.flatMap((kind) =>
    [...all.keys()]
      .filter((at) => all[at]!.kind === kind)
      .sort((a, b) => (meritOf(a) === meritOf(b) ? a - b : meritOf(b) - meritOf(a))),
  );
}

/** The settings of a run, in a line. */
export function described({ config, learningRate, tokensPerStep, seed }: RunSettings): string {
  const { layers, width } = shapeOf(config);
  const shape = `${layers} ${layers === 1 ? "layer" : "layers"} × ${width}`;
  return `${shape}, ${whole(tokensPerStep)} per step, rate ${learningRate}, seed ${seed}`;
}
