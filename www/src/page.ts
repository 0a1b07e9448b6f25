/** The page's buttons, and what else a visitor does to it. */
import { programOf } from "./code.ts";
import {
  attempt,
  begin,
  bring,
  fail,
  formChanged,
  halt,
  hurry,
  learn,
  leavingLoses,
  open,
  ready,
  setup,
  train,
  training,
} from "./control.ts";
import { byId } from "./dom.ts";
import { dropped, folderOf } from "./import.ts";
import { link } from "./link.ts";
import { onChip } from "./loom/chips.ts";
import { state } from "./panels/buttons.ts";
import { say } from "./panels/status.ts";
import { revealInvalid } from "./reveal.ts";
import { offerTour } from "./tour.ts";

setup.element.addEventListener("submit", (event) => {
  event.preventDefault();
  attempt(state() === "paused" ? train : () => begin(), fail);
});
setup.element.addEventListener("change", formChanged);
revealInvalid(setup.element, say);
byId("code", HTMLButtonElement).addEventListener("click", () => {
  if (!training) return;
  const program = programOf(training);
  const shown = byId("code-text", HTMLElement);
  shown.textContent = program;
  shown.hidden = false;
  navigator.clipboard?.writeText(program).catch(() => undefined);
  say("The program is below, and the clipboard has it. It reads the text from text.txt.");
});
byId("pause", HTMLButtonElement).addEventListener("click", () => {
  if (state() === "paused") attempt(train, fail);
  else halt("paused");
});
byId("stop", HTMLButtonElement).addEventListener("click", () => halt("stopped"));
byId("link", HTMLButtonElement).addEventListener("click", () => {
  history.replaceState(null, "", link());
  navigator.clipboard?.writeText(location.href).catch(() => undefined);
  say("The address bar has the link, and so has the clipboard. Your own text is not in it.");
});
const picked = byId("import-files", HTMLInputElement);
byId("import", HTMLButtonElement).addEventListener("click", () => picked.click());
picked.addEventListener("change", () => {
  const files = [...(picked.files ?? [])];
  picked.value = "";
  if (files.length > 0) attempt(() => bring(folderOf(files)), fail);
});
addEventListener("dragover", (event) => event.preventDefault());
addEventListener("drop", (event) => {
  event.preventDefault();
  if (!ready() || !event.dataTransfer) return;
  const folder = dropped(event.dataTransfer);
  attempt(async () => bring(await folder), fail);
});
addEventListener("beforeunload", (event) => {
  if (leavingLoses()) event.preventDefault();
});
addEventListener("visibilitychange", () => {
  if (document.hidden) hurry();
});
onChip(learn);
offerTour();
// In a task of its own: the page is painted first.
setTimeout(() => attempt(open, fail));
