import { parseSentence } from "./parse.ts";

export interface SampleScore {
  /** Whole sentences found in the sample. */
  sentences: number;
  grammatical: number;
  /** Grammatical sentences that the training text does not contain. */
  novel: number;
  grammaticalShare: number;
  novelShare: number;
}

/** What a piece of a sample is; `cut` is a first or last sentence of which a part may be missing. */
export type Verdict = "novel" | "seen" | "ungrammatical" | "cut";

/** A sentence as it stands in the sample, with its full stop and the space after it. */
export interface JudgedPiece {
  text: string;
  verdict: Verdict;
}

const bare = (piece: string): string => piece.trim().replace(/\.$/, "");

/** A text's sentences, each with its end: a full stop or a line break, and the white space after it. */
function pieces(text: string): string[] {
  return text.match(/[^.\n]*[.\n]\s*|[^.\n]+$/g) ?? [];
}

/** A text's sentences without their ends. */
export const sentencesOf = (text: string): string[] => pieces(text).map(bare);

/** Judges sentences by the grammar and by whether the training text has them. */
export class StoryJudge {
  readonly #seen: ReadonlySet<string>;

  /** @param training - the training text, or the sentences of it. */
  constructor(training: string | ReadonlySet<string>) {
    this.#seen = typeof training === "string" ? new Set(sentencesOf(training)) : training;
  }

  /**
   * The sample piece by piece. The last one is cut off unless its end is there; the first one is taken for cut off
   * when it does not parse, unless `startsWhole` says that the sample follows the end of a sentence.
   */
  judge(sample: string, startsWhole = false): JudgedPiece[] {
    const all = pieces(sample).filter((piece) => bare(piece) !== "");
    return all.map((text, index) => {
      if (parseSentence(bare(text)) && /[.\n]\s*$/.test(text)) {
        return { text, verdict: this.#seen.has(bare(text)) ? "seen" : "novel" };
      }
      const first = index === 0 && !startsWhole;
      const last = index === all.length - 1 && !/[.\n]\s*$/.test(text);
      return { text, verdict: first || last ? "cut" : "ungrammatical" };
    });
  }
}

/** Sums up judged pieces; cut ones do not count. */
export function tally(judged: readonly JudgedPiece[]): SampleScore {
  const count = (verdict: Verdict): number =>
    judged.filter((piece) => piece.verdict === verdict).length;
  const novel = count("novel");
  const grammatical = novel + count("seen");
  const sentences = grammatical + count("ungrammatical");
  const share = (part: number): number => (sentences === 0 ? 0 : part / sentences);
  return {
    sentences,
    grammatical,
    novel,
    grammaticalShare: share(grammatical),
    novelShare: share(novel),
  };
}

/** Scores sampled text against the grammar and the text that the model was trained on. */
export function scoreSample(
  sample: string,
  trainingText: string,
  startsWhole = false,
): SampleScore {
  return tally(new StoryJudge(trainingText).judge(sample, startsWhole));
}
