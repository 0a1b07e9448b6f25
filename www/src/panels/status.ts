import { TinyloomError } from "tinyloom/worker";
import { byId, make } from "../dom.ts";
import { wordsFor } from "../words.ts";

/** Says in a line what the page does. */
export function say(text: string): void {
  byId("status", HTMLElement).textContent = text;
}

/** Shows a failure in the box at the top: in a visitor's words, with the library's message behind "details". */
export function showError(thrown: unknown): void {
  const { code, message } = TinyloomError.from(thrown);
  const box = byId("error", HTMLElement);
  box.dataset["code"] = code;
  const words = wordsFor(code, { userAgent: navigator.userAgent, secure: isSecureContext });
  const exact = `${message} (${code})`;
  if (words === undefined) box.textContent = exact;
  else {
    const details = make("details", "", make("summary", "", "Details"), make("p", "hint", exact));
    box.replaceChildren(make("p", "words", words), details);
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
