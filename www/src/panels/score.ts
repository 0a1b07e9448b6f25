import { byId } from "../dom.ts";
import { type Score, type ScoreKind, scoreKind } from "../exam.ts";
import { FIRST } from "../tasks/index.ts";

const words: {
  readonly [kind in ScoreKind]: { name: string; of: string; how: string; why: string };
} = {
  problems: {
    name: "Unseen problems solved",
    of: "problems",
    how: "solved",
    why: "The model is asked 128 problems that are in no training example, so it cannot know the answers by heart. An answer counts if it is right to the last letter, with the likeliest letter taken each time.",
  },
  sentences: {
    name: "New, correct sentences",
    of: "sentences",
    how: "correct",
    why: "Of the newest whole sentences in the samples, the share that follows the grammar and is not in the training text. So it measures inventing, not copying.",
  },
  guesses: {
    name: "Next letters guessed",
    of: "letters",
    how: "guessed",
    why: "In the last part of the text, which training never sees, the model guesses each next letter. This is how often its likeliest guess is the letter that stands there.",
  },
};

/** Words of letters, for a model whose tokens may be more than one. */
const named = (text: string, tokens: "letters" | "tokens"): string =>
  tokens === "letters" ? text : text.replaceAll("letter", "token");

/** The page's title before there is a score. */
const TITLE = document.title;

/** What stands for a score before there is one. */
const NONE = "–";

/** The percentage that a visitor understands at once. */
export class ScorePanel {
  /** What a score is a share of, and what was done to that share. */
  #of = "";
  #how = "";

  constructor() {
    this.start(scoreKind(FIRST, false), "letters"); // of a task, bytes are the tokens
  }

  start(kind: ScoreKind, tokens: "letters" | "tokens"): void {
    const { name, of, how, why } = words[kind];
    this.#of = named(of, tokens);
    this.#how = how;
    byId("score-name", HTMLElement).textContent = named(name, tokens);
    byId("score-why", HTMLElement).textContent = named(why, tokens);
    this.#show(NONE, "", 0, "not asked yet");
  }

  /** The percentage as it is shown. */
  get percent(): string {
    return byId("score-percent", HTMLElement).textContent;
  }

  /** The percentage with what it is of; empty before there is one. */
  get line(): string {
    return this.percent === NONE ? "" : `, ${this.percent} ${this.#how}`;
  }

  show({ right, of }: Score): void {
    const percent = Math.floor((100 * right) / of);
    this.#show(
      percent === 0 && right > 0 ? "<1 %" : `${percent} %`,
      String(right / of),
      percent,
      `${right} of ${of} ${this.#of}`,
    );
  }

  #show(text: string, value: string, percent: number, detail: string): void {
    const figure = byId("score-percent", HTMLElement);
    figure.textContent = text;
    figure.dataset["value"] = value;
    document.title = value === "" ? TITLE : `${text} ${this.#how}, tinyloom`;
    byId("score-bar", HTMLElement).style.width = `${percent}%`;
    byId("score-count", HTMLElement).textContent = detail;
  }
}
