/** The chips at the top: what a model can be taught with one press. */
import { byId } from "../dom.ts";

const chips = byId("chips", HTMLElement);
const buttons = [...chips.querySelectorAll("button")];

/** Hears what is to be learned, by its name in the form. */
export function onChip(learn: (source: string) => void): void {
  for (const button of buttons) {
    button.addEventListener("click", () => learn(button.dataset["learns"]!));
  }
}

/** Shows what the present run learns. */
export function showChip(source: string): void {
  const known = source === "file" ? "paste" : source;
  for (const button of buttons) {
    const is = button.dataset["learns"] === known;
    button.setAttribute("aria-pressed", String(is));
    if (is && chips.scrollWidth > chips.clientWidth) {
      chips.scrollTo({ left: button.offsetLeft - chips.clientWidth / 3 });
    }
  }
}
