/** Loads the fine-tune panel when a visitor opens it. */
import { byId } from "../dom.ts";
import { dropped, type Folder } from "../import.ts";
import { showErrorIn } from "../panels/status.ts";
import type { TunePanel } from "../panels/tune.ts";
import { unreachable } from "../words.ts";
import type { TuneHost } from "./host.ts";

export class LazyTunePanel {
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
      this.#panel ??= import("../panels/tune.ts")
        .catch(unreachable)
        .then(({ TunePanel }) => new TunePanel(this.#host));
      this.#loaded = await this.#panel;
      if (folder) this.#loaded.bring(await folder);
      else this.#loaded.changed();
    } catch (error) {
      this.#panel = undefined;
      showErrorIn(byId("tune-error", HTMLElement), error);
    }
  }
}
