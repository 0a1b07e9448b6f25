/** The model and the chats that a visitor chooses for a fine-tuning, read as soon as both are there. */
import { byId, whole } from "../dom.ts";
import { type Folder, folderOf } from "../import.ts";
import { type BaseModel, baseOfFolder, baseOfRun } from "../tune/base-model.ts";
import { type Chat, readChats } from "../tune/chats.ts";
import { exampleFor } from "../tune/examples.ts";
import type { TuneHost } from "../tune/host.ts";
import { type Reading, readDataset } from "../tune/tuning.ts";

/** What the panel hears. */
export interface ChoiceEvents {
  /** Something else is chosen, and is being read. */
  reading(): void;
  /** It is read. `ofPage` says whose model it is where that is another one; otherwise it is undefined. */
  read(reading: Reading, ofPage: boolean | undefined): Promise<void>;
  failed(error: unknown): void;
  /** There is nothing to read. */
  waiting(why: string): void;
}

/** The option of a folder. Those of runs have their names behind "run:". */
const FOLDER = "folder";
const RUN = "run:";

const NO_MODEL =
  "There is no model yet. Train one above, which becomes the base here, or open a checkpoint folder.";

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
  #folder: Folder | undefined;
  /** The last one that was a model: it is chosen again after one that is none. */
  #good: Folder | undefined;
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
    this.#folder = folder;
    this.#known = undefined;
    this.#picked = true;
    this.#events.reading();
    void this.#list().then(() => {
      this.#choose(FOLDER);
      return this.#read();
    });
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

  /** Lists the models: that of the page first. Keeps what is chosen while it is there. */
  async #list(): Promise<void> {
    const opened = this.#host.opened();
    if (!opened) return;
    const runs = await opened.store.list();
    const present = this.#host.training()?.run.name;
    const names = runs.map(({ name }) => name).filter((name) => name !== present);
    const options = names.map((name) => new Option(name, RUN + name));
    if (present !== undefined)
      options.unshift(new Option(`${present}, on this page`, RUN + present));
    if (this.#folder) options.unshift(new Option(`${this.#folder.name}, a folder`, FOLDER));
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
    const opened = this.#host.opened();
    const { value } = this.#base;
    if (!opened || value === "") {
      this.#reading = undefined;
      return this.#events.waiting(NO_MODEL);
    }
    const folder = this.#folder;
    const work = new AbortController();
    this.#reading = work;
    this.#events.reading();
    try {
      const known = this.#known?.key === value ? this.#known.base : undefined;
      const base = known ?? (await this.#open(value));
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
      await this.#events.read(reading, known ? undefined : value !== FOLDER);
    } catch (error) {
      if (work.signal.aborted) return;
      this.#note.textContent = "";
      if (this.#folder !== folder) await this.#list().then(() => this.#read());
      this.#events.failed(error);
    }
  }

  async #open(value: string): Promise<BaseModel> {
    const { lab, store } = this.#host.opened()!;
    const folder = this.#folder;
    if (value !== FOLDER || !folder) {
      return baseOfRun(lab, store, value.slice(RUN.length), this.#host.training());
    }
    try {
      const base = await baseOfFolder(lab, folder);
      this.#good = folder;
      return base;
    } catch (error) {
      if (this.#folder === folder) this.#folder = this.#good === folder ? undefined : this.#good;
      throw error;
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
