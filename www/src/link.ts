/** Settings in the page's address. The visitor's own text, and the prompt, are never in it. */
import { byId } from "./dom.ts";

/** Ids of the controls that are carried. The first ones set others when they change. */
const FIELDS = [
  "text-source",
  "size",
  "own-layers",
  "own-width",
  "own-heads",
  "own-context",
  "own-vocabulary",
  "steps",
  "learning-rate",
  "sequence-length",
  "tokens-per-step",
  "seed",
  "temperature",
  "max-tokens",
];

type Field = HTMLInputElement | HTMLSelectElement;

function field(id: string): Field {
  const element = byId(id, HTMLElement);
  return element as Field;
}

/** The page's address with all settings. */
export function link(): string {
  const values = FIELDS.map((id): [string, string] => [id, field(id).value]);
  return `${location.href.split("#")[0]}#${new URLSearchParams(values)}`;
}

/** Whether a field takes a value as it is: one of its options, or a number within its range and of its step. */
function fits(field: Field, value: string): boolean {
  // A field that is disabled checks nothing, and those of the form are while the page opens.
  const probe = field.cloneNode(true) as Field;
  probe.disabled = false;
  probe.value = value;
  return value !== "" && probe.value === value && probe.checkValidity();
}

/**
 * Takes over the settings of an address. A control keeps what it has where the value does not fit.
 *
 * @returns names of the settings that do not fit.
 */
export function applyLink(hash: string): string[] {
  const unfit: string[] = [];
  const values = new URLSearchParams(hash.replace(/^#/, ""));
  for (const id of FIELDS) {
    const value = values.get(id);
    if (value === null) continue;
    const element = field(id);
    if (fits(element, value)) {
      element.value = value;
      element.dispatchEvent(new Event("change"));
    } else unfit.push(id);
  }
  return unfit;
}
