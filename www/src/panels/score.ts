import { byId } from "../dom.ts";
import type { Score } from "../exam.ts";

/** What a score counts. */
export type ScoreKind = "problems" | "sentences" | "guesses";

const words: { readonly [kind in ScoreKind]: { name: string; of: string; why: string } } = {
  problems: {
    name: "Unseen problems solved",
    of: "problems",
    why: "The model is asked 128 problems that are in no training example, so it cannot know the answers by heart. An answer counts if it is right to the last letter, with the likeliest letter taken each time.",
  },
  sentences: {
    name: "New, correct sentences",
    of: "sentences",
    why: "Of the newest whole sentences in the samples, the share that follows the grammar and is not in the training text. So it measures inventing, not copying.",
  },
  guesses: {
    name: "Next letters guessed",
    of: "letters",
    why: "In the last part of the text, which training never sees, the model guesses each next letter. This is how often its likeliest guess is the letter that stands there.",
  },
};

/** The percentage that a visitor understands at once. */
export class ScorePanel {
  #kind: ScoreKind = "problems";

  start(kind: ScoreKind, tokens: string): void {
    this.#kind = kind;
    byId("score-name", HTMLElement).textContent = words[kind].name.replace("letters", tokens);
    byId("score-why", HTMLElement).textContent = words[kind].why;
    this.#show("–", "", 0, "not asked yet");
  }

  show({ right, of }: Score): void {
    const percent = Math.floor((100 * right) / of);
    this.#show(
      `${percent} %`,
      String(right / of),
      percent,
      `${right} of ${of} ${words[this.#kind].of}`,
    );
  }

  #show(text: string, value: string, percent: number, detail: string): void {
    const figure = byId("score-percent", HTMLElement);
    figure.textContent = text;
    figure.dataset["value"] = value;
    byId("score-bar", HTMLElement).style.width = `${percent}%`;
    byId("score-count", HTMLElement).textContent = detail;
  }
}
