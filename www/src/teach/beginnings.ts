/** Beginnings that a model goes on from: each is a whole sentence, or a line, of the text it has learned. */
import { randomSource } from "../../stories/generate.ts";

/** What a sample is: what follows its beginning, up to the end of the next sentence or line. */
export type Unit = "sentence" | "line";

/** The most letters that lines have on average where a text is made of lines, as plays and poems are. */
const LINE = 70;
/** The shortest and the longest beginning, in letters. */
const [SHORTEST, LONGEST] = [12, 120];

/** What a text is made of. */
export function unitOf(text: string): Unit {
  const lines = text.split("\n").filter((line) => line.trim() !== "");
  const letters = lines.reduce((sum, line) => sum + line.length, 0);
  return letters / Math.max(1, lines.length) <= LINE ? "line" : "sentence";
}

/** The letter that ends a unit. */
export const endOf = (unit: Unit): string => (unit === "line" ? "\n" : ".");

/** The unit that a text begins with, with its end; the whole text where that does not come. */
export function firstUnit(text: string, unit: Unit): { text: string; whole: boolean } {
  const blank = /^\s*/.exec(text)![0].length;
  const end = text.slice(blank).search(unit === "line" ? /\n/ : /[.!?\n]/);
  if (end < 0) return { text, whole: false };
  return { text: text.slice(0, blank + end + 1), whole: true };
}

/**
 * Different beginnings in an order that follows from the seed. A sentence comes with the space after it, a line with
 * the breaks before and after it.
 */
export function beginningsOf(text: string, unit: Unit, seed: number): string[] {
  const found =
    unit === "line"
      ? text
          .split("\n")
          .slice(1, -1)
          .filter((line) => line.trim() !== "")
          .map((line) => `\n${line}\n`)
      : (text.match(/[^.!?\n]+[.!?]+(?=\s)/g) ?? []).map((sentence) => `${sentence.trim()} `);
  const fitting = found.filter(({ length }) => length >= SHORTEST && length <= LONGEST);
  return shuffled([...new Set(fitting)], randomSource(seed));
}

/** A list in another order (Fisher and Yates). */
export function shuffled<T>(list: readonly T[], random: () => number): T[] {
  const all = [...list];
  for (let last = all.length - 1; last > 0; last--) {
    const other = Math.floor(random() * (last + 1));
    [all[last], all[other]] = [all[other]!, all[last]!];
  }
  return all;
}
