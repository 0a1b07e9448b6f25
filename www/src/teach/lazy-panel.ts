/** Loads the panel that teaches by hand when a visitor opens it. */
import { byId } from "../dom.ts";
import { showErrorIn } from "../panels/status.ts";
import type { TeachPanel } from "../panels/teach.ts";
import type { TuneHost } from "../tune/host.ts";
import { unreachable } from "../words.ts";

export class LazyTeachPanel {
  readonly #host: TuneHost;
  readonly #details = byId("teach", HTMLDetailsElement);
  #panel: Promise<TeachPanel> | undefined;
  #loaded: TeachPanel | undefined;

  constructor(host: TuneHost) {
    this.#host = host;
    this.#details.addEventListener("toggle", () => {
      if (this.#details.open) void this.#open();
    });
  }

  /** The page's run, or its GPU, is another one now. */
  changed(): void {
    this.#loaded?.changed();
  }

  /** Whether leaving the page loses what was taught. */
  get leavingLoses(): boolean {
    return this.#loaded?.leavingLoses ?? false;
  }

  async #open(): Promise<void> {
    try {
      this.#panel ??= import("../panels/teach.ts")
        .catch(unreachable)
        .then(({ TeachPanel }) => new TeachPanel(this.#host));
      this.#loaded = await this.#panel;
      this.#loaded.changed();
    } catch (error) {
      this.#panel = undefined;
      showErrorIn(byId("teach-error", HTMLElement), error);
    }
  }
}
