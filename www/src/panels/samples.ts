import { type JudgedPiece, tally, type Verdict } from "../../stories/score.ts";
import { byId, make } from "../dom.ts";
import type { SamplePiece } from "../training.ts";

const titles: Record<Verdict, string> = {
  novel: "a sentence of the grammar that the training text does not have",
  seen: "this sentence is in the training text",
  ungrammatical: "not a sentence of the grammar",
  cut: "cut off",
};

/** The samples of a run, the newest on top, with what the grammar says about them. */
export class SamplesPanel {
  readonly #list = byId("samples", HTMLOListElement);
  readonly #score = byId("score", HTMLElement);
  readonly #hint = this.#score.textContent ?? "";

  clear(): void {
    this.#list.replaceChildren();
    this.#score.textContent = this.#hint;
  }

  add(step: number, pieces: readonly SamplePiece[]): void {
    const text = make("p", "sample-text");
    for (const piece of pieces) {
      const span = make("span", piece.verdict ?? "", piece.text);
      if (piece.verdict) span.title = titles[piece.verdict];
      text.append(span);
    }
    const item = make("li", "", make("span", "sample-step", `step ${step}`), text);
    item.value = step;
    this.#list.prepend(item);
    const judged = pieces.filter((piece): piece is JudgedPiece => piece.verdict !== undefined);
    if (judged.length > 0) this.#summary(step, judged);
  }

  #summary(step: number, judged: readonly JudgedPiece[]): void {
    const { sentences, grammatical, novel } = tally(judged);
    this.#score.textContent =
      sentences === 0
        ? `At step ${step} the sample has no whole sentence.`
        : `Step ${step}: ${grammatical} of ${sentences} whole sentences parse by the grammar, ` +
          `${novel} of them new. Underlined: does not parse.`;
  }
}
