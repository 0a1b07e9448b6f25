/** “This panel in code”: the program beside a panel, which loads when a visitor opens it. */
import { copied, make } from "../dom.ts";
import { OFFLINE } from "../words.ts";

const PROGRAMS = import.meta.glob<string>("../../snippets/*.js", {
  query: "?raw",
  import: "default",
});

/** Puts its program into each element with `data-code`. */
export function offerPrograms(): void {
  for (const details of document.querySelectorAll<HTMLDetailsElement>("details[data-code]")) {
    details.addEventListener("toggle", () => details.open && void show(details));
  }
}

async function show(details: HTMLDetailsElement): Promise<void> {
  if (details.querySelector("pre")) return;
  const name = details.dataset["code"]!;
  const program = await PROGRAMS[`../../snippets/${name}.js`]!().catch(() => undefined);
  details.querySelector(".note")?.remove();
  if (program === undefined) return details.append(make("p", "note", OFFLINE));
  const text = make("pre", "scroll", program);
  text.tabIndex = 0;
  text.role = "region";
  text.ariaLabel = `The panel “${name}” in code`;
  const copy = make("button", "", "Copy");
  copy.type = "button";
  copy.addEventListener("click", async () => {
    copy.textContent = (await copied(program)) ? "Copied" : "Copy it from above";
  });
  details.append(text, make("div", "actions", copy));
}
