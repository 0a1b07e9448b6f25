import { TinyloomError } from "tinyloom/worker";
import { byId, make, sentence } from "../dom.ts";
import { wordsFor } from "../words.ts";

/** Says in a line what the page does. On a phone that line stays in view. */
export function say(text: string): void {
  byId("status", HTMLElement).textContent = text;
  byId("ticker", HTMLElement).textContent = text;
}

/** Shows a failure in the box at the top. */
export function showError(thrown: unknown): void {
  showErrorIn(byId("error", HTMLElement), thrown);
}

/**
 * Shows a failure in a box: in a visitor's words, with the library's message under "details".
 *
 * @param others - words for some codes that fit better there.
 */
export function showErrorIn(
  box: HTMLElement,
  thrown: unknown,
  others: { readonly [code: string]: string } = {},
): void {
  const { code, message, cause } = TinyloomError.from(thrown);
  box.dataset["code"] = code;
  const here = {
    userAgent: navigator.userAgent,
    secure: isSecureContext,
    online: navigator.onLine,
  };
  const words = others[code] ?? wordsFor(code, here);
  // A message in the page's own words has the library's error under it.
  const under = words === undefined && cause instanceof TinyloomError ? cause : undefined;
  box.replaceChildren(make("p", "words", words ?? sentence(message)));
  if (words !== undefined || under) {
    const exact = make("p", "hint", `${under?.message ?? message} (${under?.code ?? code})`);
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

export function clearError(box = byId("error", HTMLElement)): void {
  box.hidden = true;
  box.textContent = "";
}
