/** The card beside the loom: what is chosen, in words, and the heads, which can be cut. */
import { byId, make } from "../dom.ts";
import { disable, handOn } from "../focus.ts";
import type { Place } from "./drawing.ts";
import { explain } from "./explain.ts";
import { COLOURS } from "./ink.ts";
import { headAt } from "./pass.ts";
import type { Weave } from "./weave.ts";

export class Card {
  readonly #cuts: (off: ReadonlySet<number>) => void;
  readonly #title = byId("card-title", HTMLElement);
  readonly #words = byId("card-words", HTMLElement);
  readonly #heads = byId("card-heads", HTMLElement);
  readonly #cut = byId("card-cut", HTMLButtonElement);
  readonly #mend = byId("card-mend", HTMLButtonElement);
  #buttons: HTMLButtonElement[] = [];
  #form = "";
  #off: ReadonlySet<number> = new Set();

  /**
   * @param cut - hears which heads are to be off.
   * @param chosen - what is chosen now.
   */
  constructor(
    cut: (off: ReadonlySet<number>) => void,
    chosen: () => { weave: Weave; place: Place } | undefined,
  ) {
    this.#cuts = cut;
    this.#cut.addEventListener("click", () => {
      const now = chosen();
      if (now) cut(new Set([...this.#off, ...explain(now.weave, now.place, this.#off).heads]));
    });
    this.#mend.addEventListener("click", () => cut(new Set()));
    this.#heads.addEventListener("click", (event) => {
      const head = this.#buttons.indexOf(event.target as HTMLButtonElement);
      if (head >= 0) this.toggle(head);
    });
  }

  /** Cuts a head, or puts it back. */
  toggle(head: number): void {
    const off = new Set(this.#off);
    if (!off.delete(head)) off.add(head);
    this.#cuts(off);
  }

  show(weave: Weave, place: Place, off: ReadonlySet<number>): void {
    this.#off = off;
    const { title, lines, heads } = explain(weave, place, off);
    this.#title.textContent = title;
    // What stays the same is not said again.
    for (const [index, line] of lines.entries()) {
      const shown = this.#words.children[index] ?? this.#words.appendChild(make("p", ""));
      if (shown.textContent !== line) shown.textContent = line;
    }
    while (this.#words.children.length > lines.length) this.#words.lastElementChild!.remove();
    this.#make(weave);
    for (const [head, button] of this.#buttons.entries()) {
      button.setAttribute("aria-pressed", String(!off.has(head)));
      button.classList.toggle("named", heads.includes(head));
    }
    disable(
      this.#cut,
      heads.every((head) => off.has(head)),
    );
    if (off.size === 0) handOn(this.#mend, this.#cut);
    this.#mend.hidden = off.size === 0;
  }

  /** A place in a line. */
  brief(weave: Weave, place: Place, off: ReadonlySet<number>): string {
    const { title, lines, heads } = explain(weave, place, off);
    if (place.head === undefined) return title;
    return `${title}. ${lines[0]}${off.has(heads[0]!) ? " It is cut." : ""}`;
  }

  /** A button for each head, the last layer on top as on the loom. */
  #make({ shape: { layers, heads } }: Weave): void {
    const form = `${layers} ${heads}`;
    if (form === this.#form) return;
    this.#form = form;
    this.#buttons = [];
    const rows = Array.from({ length: layers }, (_, layer) => {
      const row = make("div", "heads", make("span", "", `layer ${layer + 1}`));
      for (let head = 0; head < heads; head++) {
        const button = make("button", "head");
        button.type = "button";
        button.style.setProperty("--head", `var(--head-${head % COLOURS})`);
        button.setAttribute("aria-label", `Head ${head + 1} of layer ${layer + 1}`);
        button.title = `Head ${head + 1} of layer ${layer + 1}: click to cut it or put it back`;
        this.#buttons[headAt(heads, layer, head)] = button;
        row.append(button);
      }
      return row;
    });
    this.#heads.replaceChildren(...rows.reverse());
  }
}
