/** Who uses the page by keys keeps their place, whatever their own press disables, hides or removes. */

/**
 * Says whether a button, a choice or a box to tick does something now. It keeps the focus, which one that is really
 * disabled loses.
 */
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

/** Keys that open a choice, or change it. Others are the browser's. */
const CHOOSES = /^(Arrow|Page|Home|End|Enter|.$)/;

/** What is only said to be disabled does nothing. */
function hold(event: Event, kind: string): void {
  if (!(event.target as Element).closest(`${kind}[aria-disabled=true]`)) return;
  event.preventDefault();
  event.stopPropagation();
}

document.addEventListener("click", (event) => hold(event, ""), true);
// A choice opens, and changes, before there is a click.
document.addEventListener("mousedown", (event) => hold(event, "select"), true);
document.addEventListener(
  "keydown",
  (event) => {
    if (CHOOSES.test(event.key) && !event.ctrlKey && !event.metaKey) hold(event, "select");
  },
  true,
);
