import { make } from "./dom.ts";

/** Shows rows in a table, in place of others. A row that stays keeps its focus. */
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
  const focused = document.activeElement as HTMLElement | null;
  const shown = table.tBodies[0] ?? table.createTBody();
  for (const row of [...shown.rows]) if (!body.includes(row)) row.remove();
  for (const [at, row] of body.entries()) {
    if (shown.rows[at] !== row) shown.insertBefore(row, shown.rows[at] ?? null);
  }
  if (shown.contains(focused)) focused!.focus({ preventScroll: true });
  table.tHead?.remove();
  table.prepend(make("thead", "", make("tr", "", ...cells)));
}

/** A row whose first cell heads it. */
export function tableRow(head: string, ...cells: (string | Node)[]): HTMLTableRowElement {
  const first = make("th", "", head);
  first.scope = "row";
  return make("tr", "", first, ...cells.map((cell) => make("td", "", cell)));
}
