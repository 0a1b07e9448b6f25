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
  const name = field.labels?.[0]?.textContent?.trim() ?? field.id;
  say(`${name}: ${field.validationMessage}`);
}
