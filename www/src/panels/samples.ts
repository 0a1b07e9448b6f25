import { type JudgedPiece, tally, type Verdict } from "../../stories/score.ts";
import { byId, make } from "../dom.ts";
import type { SamplePiece } from "../training.ts";

const titles: { readonly [verdict in Verdict]: string } = {
  novel: "a sentence of the grammar that the training text does not have",
  seen: "this sentence is in the training text",
  ungrammatical: "not a sentence of the grammar",
  cut: "cut off",
};

/** A piece with its verdict, for those too who do not see colours. */
function shown(piece: SamplePiece): HTMLElement {
  const span = make("span", piece.verdict ?? "", piece.text);
  if (piece.verdict === "wrong") span.title = `right is ${piece.wanted}`;
  if (piece.verdict === "right" || piece.verdict === "wrong") {
    span.append(make("span", "tick", piece.verdict === "right" ? " ✓" : " ✗"));
  } else if (piece.verdict) span.title = titles[piece.verdict];
  return span;
}

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
    const answers = pieces.filter(({ verdict }) => verdict === "right" || verdict === "wrong");
    const text = make("p", answers.length > 0 ? "sample-text answers" : "sample-text");
    for (const piece of pieces) {
      text.append(shown(piece));
    }
    const item = make("li", "", make("span", "sample-step", `step ${step}`), text);
    item.value = step;
    this.#list.prepend(item);
    const judged = pieces.filter((piece): piece is JudgedPiece => (piece.verdict ?? "") in titles);
    if (judged.length > 0) this.#summary(step, judged);
    if (answers.length > 0) {
      const right = answers.filter(({ verdict }) => verdict === "right").length;
      this.#score.textContent = `Step ${step}: ${right} of these ${answers.length} right. None is in its examples.`;
    }
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
