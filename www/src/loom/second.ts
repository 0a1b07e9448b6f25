/** A second loom beside the first: another run of the same kind, at the same step, on the same letters. */
import { byId, whole } from "../dom.ts";
import { described, furthestFirst, rankingOf, reachedOn } from "../furthest.ts";
import { fill, tableRow } from "../table.ts";
import { type Exam, keyOf, rightSaid } from "./asker.ts";
import type { Picture } from "./captions.ts";
import { type Laid, lay } from "./cloth.ts";
import { Drawing } from "./drawing.ts";
import type { Snapshot, Track } from "./track.ts";
import { spelt } from "./weave.ts";
import type { Weaver } from "./weaver.ts";

/** Earlier runs of this visit that are kept for it, with all their weights. */
const KEPT = 2;
const NONE = "";
const HEADS = ["Run", "Furthest", "Settings"];

const nameOf = (track: Track, at: number): string =>
  track.recorded
    ? "the recording"
    : `${at === 0 ? "the run before" : "the one before that"}, ${whole(track.steps)} steps`;

export class SecondLoom {
  readonly #part = byId("loom-beside", HTMLElement);
  readonly #choice = byId("loom-second-of", HTMLSelectElement);
  readonly #drawing = new Drawing(byId("loom-second", HTMLCanvasElement));
  /** Runs that are over, the newest first. */
  #earlier: readonly Track[] = [];
  #offered: readonly Track[] = [];
  #track: Track | undefined;
  /** The weights on it. */
  #snapshot: Snapshot | undefined;
  readonly #first: () => Picture | undefined;

  /**
   * @param changed - hears that another run is to be shown.
   * @param first - what is on the loom beside it.
   */
  constructor(changed: () => void, first: () => Picture | undefined) {
    this.#first = first;
    this.#choice.addEventListener("change", () => {
      this.#track = this.#offered[Number(this.#choice.value || Number.NaN)];
      this.#snapshot = undefined;
      this.#place();
      changed();
    });
  }

  /** The run on it. */
  get track(): Track | undefined {
    return this.#track;
  }

  /** Whether it shows other weights at this step than it does now. */
  stale(at: number): boolean {
    return this.#track !== undefined && this.#track.upTo(at) !== this.#snapshot;
  }

  /** The questions of what it shows, unless they are answered. */
  get unasked(): Exam | undefined {
    const [track, snapshot] = [this.#track, this.#snapshot];
    if (!track || !snapshot || snapshot.marks.has("")) return undefined;
    return { snapshot, questions: track.questions, off: new Set() };
  }

  /** Another run takes the place of this one, which can be looked at beside it. */
  over(track: Track): void {
    if (track.newest >= 0) this.#earlier = [track, ...this.#earlier].slice(0, KEPT);
  }

  /** Offers what can be shown beside a run. What is shown already stays, if it still can be. */
  offer(shown: Track, recording: Track | undefined): void {
    const all = [...this.#earlier, ...(recording ? [recording] : [])];
    this.#offered = all.filter((one) => one !== shown && one.name === shown.name);
    if (this.#track && !this.#offered.includes(this.#track)) this.#track = undefined;
    if (!this.#track) this.#snapshot = undefined;
    const options = this.#offered.map(
      (track, at) => new Option(`Beside ${nameOf(track, this.#earlier.indexOf(track))}`, `${at}`),
    );
    this.#choice.replaceChildren(new Option("One loom", NONE), ...options);
    this.#choice.value = this.#track ? `${this.#offered.indexOf(this.#track)}` : NONE;
    this.#choice.hidden = this.#offered.length === 0;
    this.#place();
  }

  /** Draws the other run at a step, with what the first loom has on it. */
  async weave(
    weaver: Weaver,
    at: number,
    asked: { text: string; cursor: number; narrow: boolean },
    stale: () => boolean,
  ): Promise<void> {
    const track = this.#track;
    const snapshot = track?.upTo(at);
    if (!track || !snapshot) return;
    const laid: Laid = lay(track, asked.text, asked.cursor, asked.narrow);
    const woven = await weaver.weave(snapshot, { ...laid, off: new Set() }, stale);
    if (!woven || this.#track !== track) return;
    this.#drawing.show(woven, { wanted: laid.wanted, ghost: [] }, new Set());
    this.#drawing.refresh();
    this.#snapshot = snapshot;
    this.tell();
    const said = spelt(woven.tokens.slice(woven.given));
    this.#drawing.canvas.ariaLabel = `${this.#about}: it says ${said || "nothing"}`;
  }

  /** What is on it. */
  get #about(): string {
    const [track, { step }] = [this.#track!, this.#snapshot!];
    const end = track.ended && step === track.newest ? ", its last" : "";
    return `${track.recorded ? "The recording" : "The earlier run"} at step ${whole(step)}${end}`;
  }

  /** Says what is on it, and how that did. */
  tell(): void {
    if (!this.#track || !this.#snapshot) return;
    const words = `${this.#about}: ${rightSaid(this.#snapshot.marks.get(""))}`;
    byId("loom-second-words", HTMLElement).textContent = words;
    this.#rank(this.#track, this.#snapshot);
  }

  /** Says which of both got furthest, at the steps that are shown, and with which settings. */
  #rank(track: Track, { step }: Snapshot): void {
    const first = this.#first();
    if (!first) return;
    const own = first.off.size > 0 ? ", with heads cut" : "";
    const runs = [
      {
        name: `${first.track.recorded ? "The recording" : "Your model"}${own}`,
        of: first.track,
        reached: reachedOn(first.track, first.snapshot.step, keyOf(first.off)),
      },
      { name: this.#name, of: track, reached: reachedOn(track, step, "") },
    ];
    const all = runs.map(({ reached }) => reached);
    const ranking = rankingOf(all);
    const rows = furthestFirst(all).map((at) =>
      tableRow(runs[at]!.name, ranking[at]!, described(runs[at]!.of.settings)),
    );
    fill(byId("loom-furthest", HTMLTableElement), HEADS, rows);
  }

  get #name(): string {
    const track = this.#track!;
    if (track.recorded) return "The recording";
    return this.#earlier.indexOf(track) > 0 ? "The run before that" : "The run before";
  }

  #place(): void {
    this.#part.hidden = this.#track === undefined;
    byId("loom-both", HTMLElement).classList.toggle("two", this.#track !== undefined);
  }
}
