/** The model and the chats that a visitor chooses for a fine-tuning, read as soon as both are there. */
import { byId, whole } from "../dom.ts";
import { type Folder, folderOf } from "../import.ts";
import { addressOf } from "../tune/address.ts";
import { type BaseModel, baseOfRun } from "../tune/base-model.ts";
import { type Chat, readChats } from "../tune/chats.ts";
import { exampleFor } from "../tune/examples.ts";
import { type Given, givenAddress, givenFolder } from "../tune/given.ts";
import type { TuneHost } from "../tune/host.ts";
import { type Reading, readDataset } from "../tune/tuning.ts";
import { TuneAddress } from "./tune-address.ts";

/** What the panel hears. */
export interface ChoiceEvents {
  /** Something else is chosen, and is being read; `what` says what of it. */
  reading(what?: string): void;
  /** It is read. `ofPage` says whose model it is where that is another one; otherwise it is undefined. */
  read(reading: Reading, ofPage: boolean | undefined): Promise<void>;
  failed(error: unknown): void;
  /** There is nothing to read. */
  waiting(why: string): void;
}

/** The option of a model that was brought. Those of runs have their names after "run:". */
const GIVEN = "given";
const RUN = "run:";

const NO_MODEL =
  "There is no model yet. Train one above, which becomes the base here, open a checkpoint folder, or type an address.";

/** The files of a picker, with the name of their folder. Files in folders within are left out. */
function pickedFolder(files: readonly File[]): Folder {
  const [first] = files;
  const path = first?.webkitRelativePath ?? "";
  const top = files.filter(({ webkitRelativePath: one }) => one.split("/").length <= 2);
  return folderOf(top, path === "" ? undefined : path.split("/")[0]);
}

export class TuneChoice {
  readonly #host: TuneHost;
  readonly #events: ChoiceEvents;
  readonly #base = byId("tune-base", HTMLSelectElement);
  readonly #source = byId("tune-source", HTMLSelectElement);
  readonly #paste = byId("tune-paste", HTMLTextAreaElement);
  readonly #file = byId("tune-file", HTMLInputElement);
  readonly #note = byId("tune-chats-note", HTMLElement);
  readonly #address = new TuneAddress(
    (typed) => {
      try {
        const address = addressOf(typed, location.protocol === "https:");
        this.#take(givenAddress(address, () => this.#address.keeps));
      } catch (error) {
        this.#events.failed(error);
      }
    },
    () => this.#giveUp(),
  );
  #given: Given | undefined;
  /** The last one that was a model: it is chosen again after one that is none. */
  #good: Given | undefined;
  #chosenFile: File | undefined;
  /** The model that was read last, by its option. */
  #known: { readonly key: string; readonly base: BaseModel } | undefined;
  /** Whether the visitor has chosen the model. */
  #picked = false;
  #reading: AbortController | undefined;
  #last: Reading | undefined;
  #listing = false;

  constructor(host: TuneHost, events: ChoiceEvents) {
    this.#host = host;
    this.#events = events;
    this.#base.addEventListener("change", () => {
      this.#picked = true;
      this.#choose(this.#base.value);
      void this.#read();
    });
    this.#source.addEventListener("change", () => {
      this.#showSource();
      void this.#read();
    });
    this.#paste.addEventListener("change", () => void this.#read());
    this.#file.addEventListener("change", () => {
      this.#chosenFile = this.#file.files?.[0];
      void this.#read();
    });
    for (const [button, picker] of [
      ["tune-open", "tune-folder"],
      ["tune-pick", "tune-files"],
    ] as const) {
      const files = byId(picker, HTMLInputElement);
      byId(button, HTMLButtonElement).addEventListener("click", () => files.click());
      files.addEventListener("change", () => {
        const all = [...(files.files ?? [])];
        files.value = "";
        if (all.length > 0) this.takeFolder(pickedFolder(all));
      });
    }
    this.#showSource();
  }

  takeFolder(folder: Folder): void {
    try {
      this.#take(givenFolder(folder));
    } catch (error) {
      this.#events.failed(error);
    }
  }

  /** Chooses a model that was brought. */
  #take(given: Given): void {
    this.#given = given;
    this.#known = undefined;
    this.#picked = true;
    this.#events.reading();
    this.#listed(() => this.#choose(GIVEN));
  }

  /** Reads the address no further: the model before is chosen again, or none. */
  #giveUp(): void {
    this.#reading?.abort();
    this.#given = this.#good;
    this.#listed();
  }

  /** Lists the models anew, and reads what is chosen. The panel shows why a list failed. */
  #listed(choose: () => void = () => undefined): void {
    this.#list()
      .then(() => {
        choose();
        return this.#read();
      })
      .catch((error: unknown) => this.#events.failed(error));
  }

  #choose(value: string): void {
    this.#base.value = value;
    this.#base.title = this.#base.selectedOptions[0]?.text ?? ""; // which may be longer than the field
  }

  takeChats(file: File): void {
    this.#chosenFile = file;
    this.#source.value = "file";
    this.#showSource();
    void this.#read();
  }

  /** The page has other runs now. */
  refresh(): void {
    void this.#address.refresh();
    if (this.#listing) return;
    this.#listing = true;
    const before = this.#base.value;
    this.#list()
      .then(() => {
        if (this.#base.value !== before || !this.#reading) return this.#read();
        return undefined;
      })
      .catch((error: unknown) => this.#events.failed(error))
      .finally(() => {
        this.#listing = false;
      });
  }

  /** Lists the models: one that was brought first, then that of the page. Keeps what is chosen while it is there. */
  async #list(): Promise<void> {
    const opened = this.#host.opened();
    if (!opened) return;
    const runs = await opened.store.list();
    const present = this.#host.training()?.run.name;
    const names = runs.map(({ name }) => name).filter((name) => name !== present);
    const options = names.map((name) => new Option(name, RUN + name));
    if (present !== undefined)
      options.unshift(new Option(`${present}, on this page`, RUN + present));
    if (this.#given) options.unshift(new Option(this.#given.label, GIVEN));
    if (options.length === 0) options.push(new Option("No model yet", ""));
    const { value } = this.#base;
    const shown = [...this.#base.options].map((one) => one.value + one.text).join("\n");
    if (shown !== options.map((one) => one.value + one.text).join("\n")) {
      this.#base.replaceChildren(...options);
    }
    const values = options.map((option) => option.value);
    const kept = this.#picked && values.includes(value);
    this.#choose(kept ? value : (values[0] ?? ""));
  }

  #showSource(): void {
    const { value } = this.#source;
    byId("tune-file-field", HTMLElement).hidden = value !== "file";
    byId("tune-paste-field", HTMLElement).hidden = value !== "paste";
    byId("tune-forms", HTMLElement).hidden = value === "example";
  }

  /** Reads what is chosen; what is read meanwhile is dropped. */
  async #read(): Promise<void> {
    this.#reading?.abort();
    this.#address.busy = false;
    const opened = this.#host.opened();
    const { value } = this.#base;
    if (!opened || value === "") {
      this.#reading = undefined;
      return this.#events.waiting(NO_MODEL);
    }
    const given = this.#given;
    const work = new AbortController();
    this.#reading = work;
    this.#events.reading();
    try {
      const known = this.#known?.key === value ? this.#known.base : undefined;
      const base = known ?? (await this.#open(value, work.signal));
      work.signal.throwIfAborted();
      const chats = await this.#chats(base);
      work.signal.throwIfAborted();
      if (typeof chats === "string") {
        this.#note.textContent = "";
        return this.#events.waiting(chats);
      }
      const { signal } = work;
      const onProgress = ({ loaded }: { loaded: number }) => {
        if (!signal.aborted) this.#note.textContent = `${whole(loaded)} chats read…`;
      };
      const reading = await readDataset(opened.lab, base, chats, { signal, onProgress });
      if (signal.aborted) return void reading.dataset.free();
      this.#known = { key: value, base };
      await this.#last?.dataset.free();
      this.#last = reading;
      this.#describe(reading);
      await this.#events.read(reading, known ? undefined : value !== GIVEN);
    } catch (error) {
      if (work.signal.aborted) return;
      this.#note.textContent = "";
      // If the list fails to load as well, the page shows the first error.
      const read = () => this.#read();
      if (this.#given !== given) await this.#list().then(read, () => undefined);
      this.#events.failed(error);
    }
  }

  async #open(value: string, signal: AbortSignal): Promise<BaseModel> {
    const { lab, store } = this.#host.opened()!;
    const given = this.#given;
    if (value !== GIVEN || !given) {
      return baseOfRun(lab, store, value.slice(RUN.length), this.#host.training());
    }
    this.#address.busy = true;
    try {
      const base = await given.open(lab, signal, (what) => {
        if (signal.aborted) return;
        this.#address.tell(what);
        this.#events.reading(what);
      });
      this.#good = given;
      return base;
    } catch (error) {
      if (this.#given === given) this.#given = this.#good === given ? undefined : this.#good;
      throw error;
    } finally {
      if (!signal.aborted) this.#address.busy = false;
      void this.#address.refresh(); // what says what the model is may be kept now
    }
  }

  /** The chats that are chosen; a message where there are none yet. */
  async #chats(base: BaseModel): Promise<readonly Chat[] | string> {
    const { value } = this.#source;
    if (value === "example") return exampleFor(base.task).chats;
    if (value === "paste") {
      const text = this.#paste.value;
      if (text.trim() === "") return "Paste some chats first.";
      return readChats(new Blob([text]));
    }
    const file = this.#chosenFile;
    return file ? readChats(file, file.name) : "Choose a file of chats first, or drop one here.";
  }

  #describe({ base, chats, dataset }: Reading): void {
    const kept = dataset.validationTokens > 0 ? "a tenth is kept to check it" : "all are learned";
    const what =
      this.#source.value === "example"
        ? exampleFor(base.task).teaches
        : `${whole(chats.length)} chats`;
    this.#note.textContent = `${what}; ${kept}.`;
  }
}
