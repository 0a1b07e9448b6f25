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

/** Takes over the settings of an address. What does not fit a control is left as it is. */
export function applyLink(hash: string): void {
  const values = new URLSearchParams(hash.replace(/^#/, ""));
  for (const id of FIELDS) {
    const value = values.get(id);
    if (value === null) continue;
    const element = field(id);
    const before = element.value;
    element.value = value;
    if (element.value === "" || !element.checkValidity()) element.value = before;
    else element.dispatchEvent(new Event("change"));
  }
}
