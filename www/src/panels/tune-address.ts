/** The field of the fine-tune panel for a model's address. */
import { byId } from "../dom.ts";
import { handOn } from "../focus.ts";

/** Where the package keeps files of addresses in the browser. */
const KEPT = "tinyloom";

/** Undefined where the browser keeps nothing: a private window, a frame without storage, blocked cookies. */
async function stored<T>(work: (storage: CacheStorage) => Promise<T>): Promise<T | undefined> {
  try {
    // Some browsers refuse the object, others what is asked of it.
    return await work(globalThis.caches);
  } catch {
    return undefined;
  }
}

export class TuneAddress {
  readonly #field = byId("tune-address", HTMLInputElement);
  readonly #load = byId("tune-load", HTMLButtonElement);
  readonly #keep = byId("tune-keep", HTMLInputElement);
  readonly #forget = byId("tune-forget", HTMLButtonElement);
  readonly #note = byId("tune-address-note", HTMLElement);
  readonly #hint = this.#note.textContent;
  #busy = false;

  /**
   * @param load - hears what was typed.
   * @param cancel - hears that it is not to be read any further.
   */
  constructor(load: (typed: string) => void, cancel: () => void) {
    this.#load.addEventListener("click", () => {
      if (this.#busy) cancel();
      else load(this.#field.value);
    });
    this.#field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault(); // the form would begin to train
      if (!this.#busy) load(this.#field.value);
    });
    // What is typed here is no choice of the form until it is loaded.
    for (const one of [this.#field, this.#keep]) {
      one.addEventListener("change", (event) => event.stopPropagation());
    }
    this.#forget.addEventListener("click", () => {
      void stored((storage) => storage.delete(KEPT)).then(() => this.refresh());
    });
    void this.refresh();
  }

  /** Whether the browser is to keep a model's files. */
  get keeps(): boolean {
    return this.#keep.checked && !this.#keep.disabled;
  }

  /** Whether a model that was brought is being read. */
  set busy(busy: boolean) {
    this.#busy = busy;
    this.#load.textContent = busy ? "Cancel" : "Load";
    if (!busy) this.#note.textContent = this.#hint;
  }

  /** Says beside the field what is being read. */
  tell(what: string): void {
    this.#note.textContent = what;
  }

  /** Shows whether files are kept. */
  async refresh(): Promise<void> {
    const kept = await stored((storage) => storage.has(KEPT));
    this.#keep.disabled = kept === undefined;
    if (!kept) handOn(this.#forget, this.#keep);
    this.#forget.hidden = !kept;
  }
}
