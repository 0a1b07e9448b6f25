/** The page's buttons, and what else a visitor does to it. */
import { arrive, open } from "./arrive.ts";
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
  ready,
  session,
  setup,
  stage,
  train,
} from "./control.ts";
import { byId, copied } from "./dom.ts";
import { dropped, folderOf } from "./import.ts";
import { link } from "./link.ts";
import { onChip } from "./loom/chips.ts";
import { offerPrograms } from "./panels/in-code.ts";
import { say } from "./panels/status.ts";
import { rememberAddress } from "./remember.ts";
import { revealInvalid } from "./reveal.ts";
import { offerShare } from "./share/lazy-panel.ts";
import { OFFLINE } from "./words.ts";

setup.element.addEventListener("submit", (event) => {
  event.preventDefault();
  if (!ready()) return;
  attempt(session.state === "paused" ? train : () => begin(), fail);
});
setup.element.addEventListener("change", formChanged);
revealInvalid(setup.element, say);
byId("code", HTMLButtonElement).addEventListener("click", () => {
  if (!session.run) return;
  const program = programOf(session.run);
  const shown = byId("code-text", HTMLElement);
  shown.textContent = program;
  shown.hidden = false;
  copied(program).then((copied) => {
    const where = copied ? "below, and in the clipboard" : "below: copy it from there";
    say(`The program is ${where}. It reads the text from text.txt.`);
  });
});
byId("pause", HTMLButtonElement).addEventListener("click", () => {
  if (session.state === "training") halt("paused");
});
byId("stop", HTMLButtonElement).addEventListener("click", () => halt("stopped"));
byId("link", HTMLButtonElement).addEventListener("click", () => {
  history.replaceState(null, "", link());
  rememberAddress();
  copied(location.href).then((copied) => {
    const where = copied ? ", and so has the clipboard" : ": copy it from there";
    say(`The address bar has the link${where}. Your own text is not in it.`);
  });
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
  if (!event.dataTransfer) return;
  const folder = dropped(event.dataTransfer);
  attempt(async () => bring(await folder), fail);
});
addEventListener("beforeunload", (event) => {
  if (leavingLoses()) event.preventDefault();
});
addEventListener("visibilitychange", () => {
  if (document.hidden) hurry();
});
addEventListener("hashchange", arrive);
byId("tour", HTMLButtonElement).addEventListener("click", () => {
  import("./tour.ts").then(
    ({ takeTour }) => takeTour(),
    () => say(OFFLINE),
  );
});
onChip(learn);
offerShare(stage);
offerPrograms();
// In a task of its own: the page is painted first.
setTimeout(() => attempt(open));
