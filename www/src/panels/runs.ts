import type { RunSummary } from "tinyloom/storage";
import type { StepMetrics } from "tinyloom/worker";
import { byId, bytes, make, whole } from "../dom.ts";
import { disable, handOn } from "../focus.ts";
import { described, furthestFirst, type Reached, rankingOf, reachedBy } from "../furthest.ts";
import type { Stored } from "../run-saver.ts";
import { type KeptScore, keptOf, type RunStore } from "../run-store.ts";
import { fill, tableRow } from "../table.ts";

/** What the page does with a run of the list. */
export interface RunActions {
  resume(name: string): void;
  export(name: string): void;
  rename(name: string, to: string): void;
  delete(names: readonly string[]): void;
  /** The runs whose curves are to be seen. */
  compare(names: readonly string[]): void;
}

/** What may be done with the runs. */
interface May {
  readonly busy: boolean;
  readonly proving: boolean;
  readonly ready: boolean;
}

const HEADS = [
  "Compare",
  "Name",
  "Learns from",
  "Settings",
  "Result",
  "Furthest",
  "Begun",
  "Actions",
];
/** Why a run waits while a proof uses the page's own. */
const PROOF = "Wait until the proof is over.";
/** Which of them are texts, the last of these the result; and who got furthest. */
const [TEXTS, RESULT, FURTHEST] = [2, 4, 5];

function noteOf({ lasting, full }: RunStore): string {
  if (full) {
    return (
      "The browser's storage for this page is full. What does not fit is in memory and ends with the page: " +
      "export it, or delete other runs before the next one."
    );
  }
  return lasting
    ? "Every run that you start is kept in this browser, with its text. It goes on where it was after a reload " +
        "or a crash. The run that the page opens with ends with the page. The curves of those chosen here lie " +
        "behind the present one."
    : "This browser keeps nothing for this page, as in some private windows. Runs end with the page: export " +
        "those that you want to keep.";
}

/** The page's run, and how far it has come. */
interface Current {
  readonly id: string;
  readonly step: number;
}

/** What the newest checkpoint of a run has. */
interface Result {
  readonly stored: Stored;
  readonly steps: number | undefined;
  readonly validation: number | undefined;
}

/** How far a run has come, and how far it is stored where that is less. */
function said(result: Result | undefined, step: number | undefined): string {
  if (!result) return "nothing stored yet";
  const { stored, steps, validation } = result;
  const of = steps === undefined ? "" : ` of ${whole(steps)}`;
  const reached = `step ${whole(Math.max(stored.step, step ?? 0))}${of}`;
  const lags = step !== undefined && step > stored.step;
  const kept = lags ? `, stored up to step ${whole(stored.step)}` : "";
  const loss = validation === undefined ? "" : `, validation ${validation.toFixed(3)}`;
  return `${reached}${kept}${loss}, ${bytes(stored.bytes)}`;
}

/** The runs that the browser keeps, as a table. */
export class RunsPanel {
  readonly #actions: RunActions;
  readonly #deleteAll = byId("delete-all", HTMLButtonElement);
  readonly #order = byId("furthest-first", HTMLButtonElement);
  readonly #compared = new Set<string>();
  /** The last validation loss by run and checkpoint. */
  readonly #losses = new Map<string, number | undefined>();
  #runs: readonly RunSummary[] = [];
  /** By the id of a run its row, and its newest validation loss that is stored. */
  #rows: ReadonlyMap<string, HTMLTableRowElement> = new Map();
  #validations: ReadonlyMap<string, number | undefined> = new Map();
  /** The page's run, and what is stored of it. */
  #current: Current | undefined;
  #stored: Result | undefined;
  /** The newest score of the page's run, which may not be stored yet. */
  #score: (KeptScore & { readonly id: string }) | undefined;
  /** Shows the list once more as it is. */
  #again: () => Promise<void> = async () => undefined;
  /** The last `show`: an older list must not come after a newer one. */
  #showing: Promise<void> = Promise.resolve();

  constructor(actions: RunActions) {
    this.#actions = actions;
    this.#deleteAll.addEventListener("click", () => {
      actions.delete(this.#runs.map(({ name }) => name));
    });
    this.#order.addEventListener("click", () => {
      this.#order.ariaPressed = this.#furthestFirst ? "false" : "true";
      void this.#again();
    });
  }

  get #furthestFirst(): boolean {
    return this.#order.ariaPressed === "true";
  }

  /**
   * Shows the runs as they are now.
   *
   * @param current - the page's run.
   * @param may - `busy`: it is training, and cannot be left; `proving`: a proof uses it; `ready`: a run may begin
   * or go on.
   */
  show(store: RunStore, current: Current | undefined, may: May): Promise<void> {
    const show = () => this.#show(store, current, may);
    this.#again = () => this.show(store, this.#current, may);
    this.#showing = this.#showing.then(show, show);
    return this.#showing;
  }

  /** A run has a new checkpoint. Only cells change: a visitor may be renaming a run in the same table. */
  stored(id: string, stored: Stored, steps: number, validation: number | undefined): void {
    if (id === this.#current?.id) this.#stored = { stored, steps, validation };
    this.#tell(id);
    this.#rank();
  }

  /** The page's run has made a step. */
  stepped(id: string, step: number): void {
    if (id === this.#current?.id) this.#current = { id, step };
    this.#tell(id);
  }

  /** The page's run has been asked. */
  scored(id: string, score: KeptScore): void {
    this.#score = { ...score, id };
    this.#rank();
  }

  #tell(id: string): void {
    const row = this.#rows.get(id);
    if (row && id === this.#current?.id)
      row.cells[RESULT]!.textContent = said(this.#stored, this.#current.step);
  }

  /** Says of each run how far it has come, and which place that is. */
  #rank(): void {
    const runs = this.#runs.filter(({ id }) => this.#rows.has(id));
    const ranking = rankingOf(runs.map((run) => this.#reachedBy(run)));
    for (const [at, { id }] of runs.entries()) {
      this.#rows.get(id)!.cells[FURTHEST]!.textContent = ranking[at]!;
    }
  }

  #reachedBy(run: RunSummary): Reached {
    const kept = keptOf(run);
    const current = run.id === this.#current?.id;
    const score = this.#score?.id === run.id ? this.#score : kept?.score;
    const loss = current ? this.#stored?.validation : this.#validations.get(run.id);
    return reachedBy(kept, score, loss);
  }

  async #show(store: RunStore, current: Current | undefined, may: May): Promise<void> {
    const runs = await store.list();
    const results = await Promise.all(runs.map((run) => this.#result(store, run)));
    this.#runs = runs;
    this.#current = current;
    const at = runs.findIndex(({ id }) => id === current?.id);
    this.#stored = results[at];
    this.#validations = new Map(runs.map(({ id }, one) => [id, results[one]?.validation]));
    const rows = runs.map((run, index) => {
      const text = said(results[index], index === at ? current?.step : undefined);
      return this.#row(run, text, current?.id, may);
    });
    this.#rows = new Map(runs.map(({ id }, one) => [id, rows[one]!]));
    this.#rank();
    const order = this.#furthestFirst
      ? furthestFirst(runs.map((run) => this.#reachedBy(run)))
      : [...rows.keys()];
    this.#fill(order.map((one) => rows[one]!));
    byId("runs-note", HTMLElement).textContent = noteOf(store);
    if (runs.length < 2) handOn(this.#deleteAll, byId("status", HTMLElement));
    for (const button of [this.#deleteAll, this.#order]) button.hidden = runs.length < 2;
    this.#deleteAll.disabled = may.busy || may.proving;
  }

  /** Shows rows. Who was in that of a run which is deleted comes to the next one. */
  #fill(rows: readonly HTMLTableRowElement[]): void {
    const table = byId("runs", HTMLTableElement);
    const before = [...table.rows].slice(1);
    const at = before.findIndex((row) => row.contains(document.activeElement));
    if (at >= 0 && !rows.includes(before[at]!)) {
      const next = rows[Math.min(at, rows.length - 1)];
      const button = [...(next?.querySelectorAll("button") ?? [])].findLast((one) => !one.disabled);
      // Of a run that trains nothing can be pressed, but it has a name.
      const field = next?.querySelector<HTMLInputElement>("input:not([type=checkbox])");
      (button ?? field ?? byId("status", HTMLElement)).focus();
    }
    fill(table, rows.length > 0 ? HEADS : [], rows);
  }

  async #result(store: RunStore, run: RunSummary): Promise<Result | undefined> {
    const newest = run.checkpoints[0];
    if (!newest) return undefined;
    const key = `${run.id} ${newest.number}`;
    if (!this.#losses.has(key)) {
      const metrics = await store.metrics(run.name).catch(() => [] as StepMetrics[]);
      const judged = metrics.filter((one) => one.validationLoss !== undefined);
      this.#losses.set(key, judged.at(-1)?.validationLoss);
    }
    const stored = { step: newest.step ?? 0, bytes: newest.bytes };
    const steps = keptOf(run)?.settings.steps;
    return { stored, steps, validation: this.#losses.get(key) };
  }

  /** The row of a run as it is now. It is made once: a visitor may be in it, and write a name. */
  #row(
    run: RunSummary,
    result: string,
    current: string | undefined,
    { busy, proving, ready }: May,
  ): HTMLTableRowElement {
    const { id, name } = run;
    const row = this.#rows.get(id) ?? this.#made(run);
    const kept = keptOf(run);
    const texts = [kept?.text.name ?? "–", kept ? described(kept.settings) : "–", result];
    for (const [at, text] of texts.entries()) row.cells[TEXTS + at]!.textContent = text;
    row.ariaCurrent = id === current ? "true" : null;
    const [box, field] = row.querySelectorAll("input");
    box!.checked = this.#compared.has(id);
    box!.ariaLabel = `Compare ${name}`;
    field!.ariaLabel = `Name of the run ${name}`;
    field!.title = name; // which may be longer than the field
    if (field !== document.activeElement) field!.value = name;
    const steps = kept?.settings.steps;
    const ended = steps !== undefined && (run.checkpoints[0]?.step ?? 0) >= steps;
    const trains = busy && id === current;
    const proves = proving && id === current;
    const says = [
      [ended ? "Open" : "Resume", !ready, proving ? PROOF : "Stop the present run first."],
      ["Export", trains, "It trains: pause it first."],
      ["Delete", trains || proves, proves ? PROOF : "It trains: stop it first."],
    ] as const;
    for (const [at, button] of row.querySelectorAll("button").entries()) {
      const [text, disabled, why] = says[at]!;
      button.textContent = text;
      button.ariaLabel = `${text} ${name}`;
      button.title = disabled ? why : "";
      disable(button, disabled);
    }
    return row;
  }

  #made(run: RunSummary): HTMLTableRowElement {
    // Nothing once another tab has deleted it.
    const name = () => this.#runs.find(({ id }) => id === run.id)?.name;
    const { resume, export: save, delete: drop } = this.#actions;
    const button = (act: (name: string) => void) => {
      const made = make("button", "");
      made.type = "button";
      made.addEventListener("click", () => {
        const own = name();
        if (own !== undefined) act(own);
      });
      return made;
    };
    const row = tableRow(
      "",
      this.#nameField(name),
      "",
      "",
      "",
      "",
      new Date(run.created).toLocaleString(undefined, { dateStyle: "short", timeStyle: "short" }),
      make(
        "div",
        "actions",
        button(resume),
        button(save),
        button((one) => drop([one])),
      ),
    );
    row.cells[0]!.replaceWith(make("td", "", this.#choice(run)));
    return row;
  }

  #choice({ id }: RunSummary): HTMLInputElement {
    const box = make("input", "");
    box.type = "checkbox";
    box.addEventListener("change", () => {
      if (box.checked) this.#compared.add(id);
      else this.#compared.delete(id);
      this.#actions.compare(this.compared());
    });
    return box;
  }

  /** Chooses a run of the list as if a visitor did. Gives the names of all that are chosen. */
  choose(id: string): string[] {
    this.#compared.add(id);
    return this.compared();
  }

  /** Names of the runs that are chosen. */
  compared(): string[] {
    return this.#runs.filter(({ id }) => this.#compared.has(id)).map(({ name }) => name);
  }

  #nameField(name: () => string | undefined): HTMLInputElement {
    const input = make("input", "");
    input.addEventListener("change", () => {
      const [own, wanted] = [name(), input.value.trim()];
      if (own === undefined) return;
      // A run without a name keeps the one that it has.
      if (wanted === "") input.value = own;
      else this.#actions.rename(own, wanted);
    });
    // A new name may have been refused.
    input.addEventListener("blur", () => {
      input.value = name() ?? input.value;
    });
    return input;
  }
}
