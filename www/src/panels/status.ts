import { TinyloomError } from "tinyloom/worker";
import { byId, make, sentence } from "../dom.ts";
import { wordsFor } from "../words.ts";

/** Says in a line what the page does. On a phone that line stays in view. */
export function say(text: string): void {
  byId("status", HTMLElement).textContent = text;
  byId("ticker", HTMLElement).textContent = text;
}

/** Shows a failure in the box at the top: in a visitor's words, with the library's message behind "details". */
export function showError(thrown: unknown): void {
  const { code, message } = TinyloomError.from(thrown);
  const box = byId("error", HTMLElement);
  box.dataset["code"] = code;
  const words = wordsFor(code, { userAgent: navigator.userAgent, secure: isSecureContext });
  box.replaceChildren(make("p", "words", words ?? sentence(message)));
  if (words !== undefined) {
    const exact = make("p", "hint", `${message} (${code})`);
    box.append(make("details", "", make("summary", "", "Details"), exact));
  }
  box.hidden = false;
}

/** Does what a button asks for. A failure is shown, and noted beside the button. */
export async function attemptNoting(
  note: HTMLElement,
  failed: string,
  work: () => Promise<void>,
): Promise<void> {
  try {
    await work();
  } catch (error) {
    note.textContent = failed;
    showError(error);
  }
}

export function clearError(): void {
  const box = byId("error", HTMLElement);
  box.hidden = true;
  box.textContent = "";
}
