import { type JudgedPiece, tally, type Verdict } from "../../stories/score.ts";
import { byId, make } from "../dom.ts";
import type { SamplePiece, WrittenToken } from "../sample.ts";
import { shownMark } from "../tasks/answers.ts";
import type { Task } from "../tasks/task.ts";
import { readable, readTokens, tokenElement, tokensBetween } from "./tokens.ts";

const titles: { readonly [verdict in Verdict]: string } = {
  novel: "a sentence of the grammar that the training text does not have",
  seen: "this sentence is in the training text",
  ungrammatical: "not a sentence of the grammar",
  cut: "cut off",
};

/** A piece with its verdict, for those too who do not see colours. */
function shown(piece: SamplePiece, content: readonly (Node | string)[]): HTMLElement {
  const span = make("span", piece.verdict ?? "", ...content);
  if (piece.verdict === "wrong" && piece.given === "")
    span.append(make("span", "nothing", "(nothing)"));
  if (piece.verdict === "wrong") span.title = `right is ${piece.wanted}`;
  if (piece.verdict === "right" || piece.verdict === "wrong") {
    span.append("\u00a0", make("span", "tick", piece.verdict === "right" ? "✓" : "✗"));
  } else if (piece.verdict) span.title = titles[piece.verdict];
  return span;
}

/** The pieces, each of its tokens where they are known. */
function piecesOf(pieces: readonly SamplePiece[], tokens: readonly WrittenToken[]): HTMLElement[] {
  const text = tokens.map((token) => token.text).join("");
  let from = 0;
  return pieces.map((piece, index) => {
    // A text begins with the line breaks that its prompt asks for.
    const blank = index === 0 && !piece.verdict ? /^\n*/.exec(piece.text)![0].length : 0;
    if (text === "") return shown(piece, [readable(piece.text.slice(blank))]);
    if (piece.verdict === "right" || piece.verdict === "wrong") {
      const { at, given } = piece;
      const asked = piece.text.slice(0, piece.text.length - given.length);
      return shown(piece, [asked, ...tokensBetween(tokens, at, at + given.length)]);
    }
    const begin = text.indexOf(piece.text, from);
    from = begin + piece.text.length;
    return shown(piece, tokensBetween(tokens, begin + blank, from));
  });
}

/** How a sample did, in a sentence; empty where nothing judges it. */
function scoreOf(step: number, pieces: readonly SamplePiece[]): string {
  const answers = pieces.filter(({ verdict }) => verdict === "right" || verdict === "wrong");
  if (answers.length > 0) {
    const right = answers.filter(({ verdict }) => verdict === "right").length;
    return `Step ${step}: ${right} of these ${answers.length} are right. It never saw them in training.`;
  }
  const judged = pieces.filter((piece): piece is JudgedPiece => (piece.verdict ?? "") in titles);
  if (judged.length === 0) return "";
  const { sentences, grammatical, novel } = tally(judged);
  return sentences === 0
    ? `At step ${step} the sample has no whole sentence.`
    : `Step ${step}: ${grammatical} of ${sentences} whole sentences parse by the grammar, ` +
        `${novel} of them new. Underlined: does not parse.`;
}

/** The samples of a run, the newest on top, with what the grammar says about them. A slider goes back in time. */
export class SamplesPanel {
  readonly #list = byId("samples", HTMLOListElement);
  readonly #score = byId("score", HTMLElement);
  readonly #hint = this.#score.textContent ?? "";
  readonly #time = byId("time", HTMLInputElement);
  readonly #field = byId("time-field", HTMLElement);
  /** What the run learns, where that has answers. */
  #task: Task | undefined;
  /** The sample that is being written, and the part of it that takes the next token. */
  #writing: { step: number; item: HTMLLIElement; text: HTMLElement; part: HTMLElement } | undefined;

  constructor() {
    readTokens(this.#list, byId("alternatives", HTMLElement));
    this.#time.addEventListener("input", () => this.#travel());
  }

  /** Clears the panel for a run. */
  start(task?: Task): void {
    this.#task = task;
    this.#list.replaceChildren();
    this.#writing = undefined;
    this.#score.textContent = this.#hint;
    this.#time.max = "1";
    this.#time.value = "1";
    this.#travel();
  }

  /** Shows a token of the sample that is being made. */
  write(step: number, token: WrittenToken): void {
    if (this.#writing?.step !== step) {
      const text = make("p", this.#task ? "sample-text answers" : "sample-text");
      this.#writing = { step, text, item: this.#item(step, text), part: text };
      this.#put(this.#writing.item);
    }
    const prompt = this.#prompt(token);
    const { textContent } = this.#writing.part;
    if (!this.#task && textContent === "" && token.text.trim() === "") return;
    if (prompt === undefined) this.#writing.part.append(tokenElement(token));
    else {
      this.#writing.part = make("span", "", prompt);
      this.#writing.text.append(this.#writing.part);
    }
  }

  /** A problem as it is shown, where the token is one: the model has not drawn it. */
  #prompt({ text, probability }: WrittenToken): string | undefined {
    const task = this.#task;
    if (!task || probability !== undefined || !text.endsWith(task.mark)) return undefined;
    return text.trim().slice(0, -task.mark.length) + shownMark(task);
  }

  /** Shows a whole sample. */
  add(step: number, pieces: readonly SamplePiece[], tokens: readonly WrittenToken[] = []): void {
    const answers = pieces.filter(({ verdict }) => verdict === "right" || verdict === "wrong");
    const text = make("p", answers.length > 0 ? "sample-text answers" : "sample-text");
    text.append(...piecesOf(pieces, tokens));
    const item = this.#item(step, text);
    item.dataset["score"] = scoreOf(step, pieces);
    if (this.#writing?.step === step) this.#writing.item.replaceWith(item);
    else this.#put(item);
    this.#writing = undefined;
    this.#travel();
  }

  #item(step: number, text: HTMLElement): HTMLLIElement {
    const item = make("li", "", make("span", "sample-step", `step ${step}`), text);
    item.value = step;
    return item;
  }

  /** On top. A slider at its end stays there, so that the newest sample is seen. */
  #put(item: HTMLLIElement): void {
    const { value, max } = this.#time;
    // While it is being written it takes the room of a whole one at once, so that those below move once.
    const before = this.#list.querySelector<HTMLElement>("li:not([hidden])");
    if (before && this.#writing) item.style.minHeight = `${before.offsetHeight}px`;
    this.#list.prepend(item);
    this.#time.max = String(this.#list.children.length);
    if (value === max) this.#time.value = this.#time.max;
    this.#travel();
  }

  /** Hides the samples that were made after the chosen one. */
  #travel(): void {
    const items = [...this.#list.children] as HTMLLIElement[];
    this.#field.hidden = items.length < 2;
    this.#time.max = String(Math.max(1, items.length));
    const chosen = items.length - this.#time.valueAsNumber;
    for (const [index, item] of items.entries()) item.hidden = index < chosen;
    const at = `step ${items[Math.max(0, chosen)]?.value ?? 0}`;
    this.#time.setAttribute("aria-valuetext", at);
    byId("time-step", HTMLElement).textContent = at;
    // What is said is of the newest sample that is shown, unless that is still being written.
    const said = items.slice(Math.max(0, chosen)).find((item) => item.dataset["score"]);
    this.#score.textContent = said?.dataset["score"] ?? this.#hint;
  }
}
