/** Who uses the page by keys keeps their place, whatever their own press disables, hides or removes. */

/** Says whether a control does something now. It keeps the focus, which one that is really disabled loses. */
export function disable(
  control: HTMLButtonElement | HTMLSelectElement | HTMLInputElement,
  disabled: boolean,
): void {
  const keeps = disabled && control === document.activeElement;
  control.disabled = disabled && !keeps;
  control.ariaDisabled = keeps ? "true" : null;
}

/** Whether it does nothing now. */
export const isDisabled = (control: Element): boolean =>
  control.matches(":disabled, [aria-disabled=true]");

/** Hands the focus on before what may have it goes. */
export function handOn(going: Element, to: HTMLElement | undefined): void {
  if (going.contains(document.activeElement)) to?.focus({ preventScroll: true });
}

// What is only said to be disabled is pressed in vain, too. A choice opens, and changes, before there is a click.
for (const [type, what] of [
  ["click", ""],
  ["mousedown", "select"],
  ["keydown", "select"],
]) {
  document.addEventListener(
    type!,
    (event) => {
      if ((event as KeyboardEvent).key === "Tab") return;
      if (!(event.target as Element).closest(`${what}[aria-disabled=true]`)) return;
      event.preventDefault();
      event.stopPropagation();
    },
    true,
  );
}
