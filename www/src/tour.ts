/** A walk over the page in six steps, for those who have not taken it. It loads when it is asked for. */
import { byId } from "./dom.ts";
import { handOn } from "./focus.ts";
import { say } from "./panels/status.ts";
import { OFFLINE } from "./words.ts";

const KEY = "tinyloom-demo.tour";

function seen(): boolean {
  try {
    return localStorage.getItem(KEY) !== null;
  } catch {
    return false; // it is switched off
  }
}

function remember(): void {
  try {
    localStorage.setItem(KEY, "seen");
  } catch {
    // it is switched off: the tour is offered again
  }
}

/** Offers the tour to those who have not seen it. */
export function offerTour(): void {
  const button = byId("tour", HTMLButtonElement);
  button.hidden = seen();
  button.addEventListener("click", () => {
    const ends = () => {
      remember();
      handOn(button, byId("share-open", HTMLElement));
      button.hidden = true;
    };
    import("./tour-steps.ts").then(({ takeTour }) => takeTour(ends)).catch(() => say(OFFLINE));
  });
}
