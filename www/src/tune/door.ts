/** The door of the fine-tune panel: what is behind it loads when a visitor opens it. */
import { byId } from "../dom.ts";
import { dropped, type Folder } from "../import.ts";
import type { Lab } from "../lab.ts";
import { showErrorIn } from "../panels/status.ts";
import type { TunePanel } from "../panels/tune.ts";
import type { Shelf } from "../shelf.ts";
import type { Training } from "../training.ts";

/** What the page is to the panel. */
export interface TuneHost {
  /** The GPU and the runs; undefined without a GPU. */
  opened(): { readonly lab: Lab; readonly shelf: Shelf } | undefined;
  /** Whether there was a GPU, and is none any more. */
  lost(): boolean;
  /** The page's own run. */
  training(): Training | undefined;
  /** Whether the page trains, or loads something. */
  busy(): boolean;
}

export class TuneDoor {
  readonly #host: TuneHost;
  readonly #details = byId("tune", HTMLDetailsElement);
  readonly #section = byId("tune-panel", HTMLElement);
  #panel: Promise<TunePanel> | undefined;
  #loaded: TunePanel | undefined;

  constructor(host: TuneHost) {
    this.#host = host;
    this.#details.addEventListener("toggle", () => {
      if (this.#details.open) void this.#open();
    });
    for (const type of ["dragenter", "dragover", "dragleave", "drop"]) {
      this.#section.addEventListener(type, () => {
        this.#section.classList.toggle("dragged", /enter|over/.test(type));
      });
    }
    this.#section.addEventListener("drop", (event) => {
      event.preventDefault();
      event.stopPropagation(); // elsewhere on the page a folder becomes a run
      if (!event.dataTransfer) return;
      const folder = dropped(event.dataTransfer);
      this.#details.open = true;
      void this.#open(folder);
    });
  }

  /** The page's run, its runs or its GPU are others now. */
  changed(): void {
    this.#loaded?.changed();
  }

  /** Whether leaving the page loses an adapter. */
  get leavingLoses(): boolean {
    return this.#loaded?.leavingLoses ?? false;
  }

  async #open(folder?: Promise<Folder>): Promise<void> {
    try {
      this.#panel ??= import("../panels/tune.ts").then(
        ({ TunePanel }) => new TunePanel(this.#host),
      );
      this.#loaded = await this.#panel;
      if (folder) this.#loaded.bring(await folder);
      else this.#loaded.changed();
    } catch (error) {
      this.#panel = undefined;
      showErrorIn(byId("tune-error", HTMLElement), error);
    }
  }
}
