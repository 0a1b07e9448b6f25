/** A square for each question that training never sees: filled once its answer is right. */
import { byId } from "../dom.ts";
import type { Question } from "./ask.ts";

/** Squares of a row. */
const ROW = 16;

export class Squares {
  readonly #grid = byId("squares", HTMLElement);
  #squares: HTMLElement[] = [];
  #at = -1;
  readonly #point: (index: number | undefined) => void;

  /**
   * @param point - hears which square is pointed at.
   * @param pick - hears which one is chosen.
   */
  constructor(point: (index: number | undefined) => void, pick: (index: number) => void) {
    this.#point = point;
    const indexOf = (event: Event) => this.#squares.indexOf(event.target as HTMLElement);
    this.#grid.addEventListener("pointerover", (event) => {
      const index = indexOf(event);
      if (index >= 0) this.#go(index);
    });
    this.#grid.addEventListener("pointerleave", () => this.#go(-1));
    this.#grid.addEventListener("blur", () => this.#go(-1));
    this.#grid.addEventListener("click", (event) => {
      const index = indexOf(event);
      if (index >= 0) pick(index);
    });
    this.#grid.addEventListener("keydown", (event) => {
      const ways: { [key: string]: number } = {
        ArrowRight: 1,
        ArrowLeft: -1,
        ArrowDown: ROW,
        ArrowUp: -ROW,
      };
      const way = ways[event.key];
      if (event.key === "Enter" && this.#at >= 0) pick(this.#at);
      if (way === undefined) return;
      event.preventDefault();
      const last = this.#squares.length - 1;
      this.#go(this.#at < 0 ? 0 : Math.max(0, Math.min(last, this.#at + way)));
    });
  }

  /** Shows as many squares as there are questions. */
  start(questions: readonly Question[]): void {
    this.#go(-1);
    // Another run's squares turn from what they were.
    if (this.#squares.length === questions.length) return;
    this.#squares = questions.map((_, index) => {
      const square = document.createElement("i");
      // They turn one after another.
      square.style.setProperty("--after", `${index * 4}ms`);
      return square;
    });
    this.#grid.replaceChildren(...this.#squares);
    this.#grid.hidden = questions.length === 0;
  }

  /** Fills those that are right, and tints those that the grey run had right. */
  show(right: readonly boolean[], ghost: readonly boolean[] | undefined): void {
    for (const [index, one] of this.#squares.entries()) {
      one.classList.toggle("right", right[index] === true);
      one.classList.toggle("ghost", ghost?.[index] === true);
    }
  }

  set label(text: string) {
    this.#grid.setAttribute("aria-label", text);
  }

  #go(index: number): void {
    this.#squares[this.#at]?.classList.remove("pointed");
    this.#at = index;
    this.#squares[index]?.classList.add("pointed");
    this.#point(index < 0 ? undefined : index);
  }
}
