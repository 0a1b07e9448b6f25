/** What the panel that teaches by hand shows: samples with thumbs, and what has changed. */
import { byId, make } from "../dom.ts";
import type { Rule } from "../teach/rules.ts";
import { shareOf, type Written } from "../teach/teaching.ts";

/** A thumb that points up; turned, it points down. Not every machine has a font with one. */
const THUMB =
  "M4 11h3v9H4zM9 20V11l4-8c1.4 0 2.3 1 2 2.4L14.3 9H19a2 2 0 0 1 2 2.3l-1.2 7a2 2 0 0 1-2 1.7z";

function drawn(): SVGSVGElement {
  const picture = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  picture.setAttribute("viewBox", "0 0 24 24");
  picture.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(picture.namespaceURI, "path");
  path.setAttribute("d", THUMB);
  picture.append(path);
  return picture;
}

/** A sample with its two thumbs. A thumb that is pressed again lets go. */
export function thumbs(
  { beginning, text }: Written,
  number: number,
  marked: (good: boolean | undefined) => void,
): HTMLLIElement {
  const thumb = (good: boolean) => {
    const made = make("button", good ? "thumb good" : "thumb bad", drawn());
    made.type = "button";
    made.ariaPressed = "false";
    made.ariaLabel = `Sample ${number} is ${good ? "good" : "bad"}`;
    return made;
  };
  const both = [thumb(true), thumb(false)] as const;
  for (const [at, one] of both.entries()) {
    one.addEventListener("click", () => {
      const pressed = one.ariaPressed !== "true";
      both[1 - at]!.ariaPressed = "false";
      one.ariaPressed = String(pressed);
      marked(pressed ? at === 0 : undefined);
    });
  }
  const words = make("p", "taught-text", make("span", "beginning", beginning), text);
  return make("li", "", words, make("div", "thumbs", ...both));
}

/** Pairs of samples, before and after, that are shown. The blind comparison has other samples. */
export const SHOWN = 6;

const percent = (share: number): string => `${Math.round(100 * share)} %`;

/** How many samples each rule holds for, before and after; the one that was rewarded stands first. */
export function showChange(
  before: readonly Written[],
  after: readonly Written[],
  all: readonly Rule[],
  rewarded: Rule | undefined,
): void {
  const rules = [...all].sort((a, b) => Number(b === rewarded) - Number(a === rewarded));
  const rows = rules.map((rule) => {
    const [from, to] = [shareOf(before, rule), shareOf(after, rule)];
    const name = make("th", "", rule.label);
    name.scope = "row";
    const row = make("tr", rule === rewarded ? "rewarded" : "", name);
    row.append(make("td", "", percent(from)), make("td", "", percent(to)));
    row.dataset["rule"] = rule.name;
    return row;
  });
  const heads = ["Of what it writes", "before", "after"].map((head) => {
    const cell = make("th", "", head);
    cell.scope = "col";
    return cell;
  });
  const table = byId("teach-shares", HTMLTableElement);
  table.replaceChildren(make("thead", "", make("tr", "", ...heads)), make("tbody", "", ...rows));
  const pairs = before.slice(0, SHOWN).map((sample, at) => {
    const item = make("li", "");
    item.append(
      make("p", "beginning", sample.beginning.trim()),
      make("p", "taught-text", make("b", "", "before "), sample.text.trim()),
      make("p", "taught-text", make("b", "", "after "), after[at]!.text.trim()),
    );
    return item;
  });
  byId("teach-pairs", HTMLOListElement).replaceChildren(...pairs);
  byId("teach-count", HTMLElement).textContent =
    `Measured on ${before.length} beginnings that nobody has marked, before and after with the same random numbers.`;
  byId("teach-change", HTMLElement).hidden = false;
}
