/** The element with an id, as the type the caller expects; a page without it is a defect. */
export function byId<T extends Element>(id: string, type: new () => T): T {
  const element = document.getElementById(id);
  if (!(element instanceof type)) throw new Error(`the page has no ${type.name} #${id}`);
  return element;
}

/** Makes an element with text or children. */
export function make<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  className: string,
  ...children: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  if (className !== "") element.className = className;
  element.append(...children);
  return element;
}

/** Shows a number; its exact value is in data-value. Without one, a dash. */
export function showNumber(id: string, value: number | undefined, text?: string): void {
  const element = byId(id, HTMLElement);
  element.dataset["value"] = value === undefined ? "" : String(value);
  element.textContent = value === undefined ? "–" : (text ?? value.toLocaleString("en"));
}

const counts = new Intl.NumberFormat("en");

/** A count as a visitor reads it, without its fraction. */
export const whole = (count: number): string => counts.format(Math.round(count));

const units = ["bytes", "kB", "MB", "GB"];

/** A count of bytes in the units of tinyloom's own messages. */
export function bytes(count: number): string {
  const power = count < 1e3 ? 0 : Math.min(units.length - 1, Math.floor(Math.log10(count) / 3));
  return `${(count / 1e3 ** power).toLocaleString("en", { maximumFractionDigits: 1 })} ${units[power]}`;
}

/** A duration as m:ss. */
export function clock(seconds: number): string {
  const rounded = Math.max(0, Math.round(seconds));
  return `${Math.floor(rounded / 60)}:${String(rounded % 60).padStart(2, "0")}`;
}

/** A duration with its unit. */
export function duration(seconds: number): string {
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  return seconds < 3600 ? `${clock(seconds)} min` : `${whole(seconds / 3600)} h`;
}

/** A message as a sentence. */
export const sentence = (message: string): string =>
  message.charAt(0).toUpperCase() + message.slice(1) + (/[.!?]$/.test(message) ? "" : ".");

/** Hands a file to the visitor. Its name loses what some systems do not take in one. */
export function download(content: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name.replace(/[^\p{L}\p{N}.-]+/gu, "-");
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** Puts a text into the clipboard; says whether the browser allowed it. */
export async function copied(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}
