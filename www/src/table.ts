import { make } from "./dom.ts";

/** Replaces the content of a table. */
export function fill(
  table: HTMLTableElement,
  heads: readonly string[],
  body: readonly HTMLTableRowElement[],
): void {
  const cells = heads.map((text) => {
    const cell = make("th", "", text);
    cell.scope = "col";
    return cell;
  });
  for (const { cells } of body) {
    for (const [at, cell] of [...cells].entries()) cell.dataset["head"] = heads[at] ?? "";
  }
  table.replaceChildren(make("thead", "", make("tr", "", ...cells)), make("tbody", "", ...body));
}

/** A row whose first cell heads it. */
export function tableRow(head: string, ...cells: (string | Node)[]): HTMLTableRowElement {
  const first = make("th", "", head);
  first.scope = "row";
  return make("tr", "", first, ...cells.map((cell) => make("td", "", cell)));
}
