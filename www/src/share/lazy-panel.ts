/** The button that opens the share panel, whose code loads with the first press. */
import { byId } from "../dom.ts";
import type { Stage } from "../loom/stage.ts";
import { OFFLINE } from "../words.ts";
import type { SharePanel } from "./panel.ts";

export function offerShare(stage: Stage): void {
  let panel: Promise<SharePanel> | undefined;
  const dialog = byId("share", HTMLElement);
  const opener = byId("share-open", HTMLButtonElement);
  opener.addEventListener("click", () => {
    if (!dialog.matches(":popover-open")) dialog.showPopover();
    dialog.focus();
    panel ??= import("./panel.ts").then((module) => new module.SharePanel(stage));
    panel.then(
      (made) => made.show(),
      () => {
        panel = undefined;
        byId("share-note", HTMLElement).textContent = OFFLINE;
      },
    );
  });
  // The button that had the focus may do nothing any more.
  dialog.addEventListener("toggle", (event) => {
    if ((event as ToggleEvent).newState !== "closed") return;
    if (document.activeElement === document.body) opener.focus();
  });
  byId("share-close", HTMLButtonElement).addEventListener("click", () => dialog.hidePopover());
}
