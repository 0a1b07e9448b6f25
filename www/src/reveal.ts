/**
 * Shows the first field that keeps a form from being sent: opens what it is folded in, and names it. The browser then
 * focuses it, which it cannot do with a field that is not shown.
 */
export function revealInvalid(form: HTMLFormElement, say: (text: string) => void): void {
  // The event does not bubble.
  form.addEventListener("invalid", ({ target }) => reveal(form, target, say), { capture: true });
}

function reveal(form: HTMLFormElement, field: unknown, say: (text: string) => void): void {
  if (!(field instanceof HTMLInputElement) || form.querySelector("input:invalid") !== field) return;
  for (
    let fold = field.closest("details");
    fold;
    fold = fold.parentElement?.closest("details") ?? null
  )
    fold.open = true;
  say(complaintOf(field));
}

/** What is wrong with the first field that keeps a form from being sent, with its name. */
export function invalidField(form: HTMLFormElement): string | undefined {
  const field = form.querySelector<HTMLInputElement>("input:invalid");
  return field ? complaintOf(field) : undefined;
}

function complaintOf(field: HTMLInputElement): string {
  const name = field.labels?.[0]?.textContent?.trim() ?? field.id;
  return `${name}: ${field.validationMessage}`;
}
