/** The stage: one screen on which a model learns. It shows a run's weights through time, on a text of the visitor's. */
import { byId, make, whole } from "../dom.ts";
import { handOn } from "../focus.ts";
import { tasks } from "../tasks/index.ts";
import type { Training, TrainingEvent } from "../training.ts";
import { answer } from "./ask.ts";
import { Asker, askingWorker, type Exam, keyOf, squareWords } from "./asker.ts";
import { type Picture, showWords } from "./captions.ts";
import { Card } from "./card.ts";
import { lay } from "./cloth.ts";
import { Drawing, type Place } from "./drawing.ts";
import { telling } from "./explain.ts";
import { liveTrack } from "./live.ts";
import type { Moment } from "./moment.ts";
import { NumberLine } from "./number-line.ts";
import { besideAt, type Stand, toAsk, toShow } from "./pace.ts";
import { Player, SHOW } from "./player.ts";
import { listen } from "./pointing.ts";
import { loadRecording } from "./recorded.ts";
import { SecondLoom } from "./second.ts";
import { Squares } from "./squares.ts";
import { NOUNS } from "./story.ts";
import { Timeline } from "./timeline.ts";
import { Snapshot, type Track } from "./track.ts";
import { spelt, type Weave } from "./weave.ts";
import { Weaver } from "./weaver.ts";
import { numbersOf, sizeOf, weavable } from "./weights.ts";

/** Milliseconds for which the end of the recording stays. */
const STAY = 2500;
/** Steps after which a run that is ahead of the recording is shown instead. */
const AHEAD = 8;
/** Pixels of a loom on a phone. */
const NARROW = 560;
const TOO_LARGE =
  "This model cannot be woven letter by letter here; the workshop below looks into it.";

export class Stage {
  readonly #drawing = new Drawing(byId("loom-canvas", HTMLCanvasElement));
  readonly #card = new Card(
    (off) => {
      this.#off = off;
      this.#changed();
    },
    () => this.#chosen,
  );
  readonly #squares = new Squares(
    (index) => this.#point(index),
    (index) => this.#pick(index),
  );
  readonly #timeline = new Timeline((step) => this.goTo(step));
  readonly #player = new Player(
    (moved) => {
      this.#maybeLive();
      this.#refresh(moved);
    },
    () => this.#captions(),
  );
  readonly #asker = new Asker(
    askingWorker(),
    (milliseconds) => this.#toAsk(milliseconds),
    () => {
      this.#refresh();
      this.#changedMarks();
      this.#timeline.refresh();
    },
    // Where the machine computes on its CPU, training needs it too.
    () => this.#live?.ended === false,
  );
  readonly #weaver = new Weaver();
  readonly #numberLine = new NumberLine();
  readonly #second = new SecondLoom(
    () => {
      this.#beside();
      this.#changed();
    },
    () => this.#picture,
  );
  readonly #word = byId("loom-word", HTMLInputElement);
  readonly #switch = byId("loom-switch", HTMLButtonElement);
  #recording: Track | undefined;
  #loading = false;
  #live: Track | undefined;
  #ghost: Track | undefined;
  /** When the newest weights came. */
  #taken = 0;
  /** Whether the visitor chose what is shown. */
  #decided = false;
  /** The word that a lesson wants woven. */
  #wanted: string | undefined;
  /** Hears that something else is shown. */
  onChange: () => void = () => undefined;
  /** Where the recording is to stand as soon as there is one. */
  #awaited: { readonly step: number; readonly cut: readonly number[] } | undefined;
  /** Heads that are cut in the next run, where a link or a lesson shows it from its beginning. */
  #next: readonly number[] | undefined;
  /** Heads that are cut. */
  #off: ReadonlySet<number> = new Set();
  /** The weights that are to be woven, and since when. */
  #snapshot: Snapshot | undefined;
  #since = 0;
  #picture: Picture | undefined;
  /** What is to be woven, and what was, by a count of changes; and that of changes of run, text and heads alone. */
  #version = 0;
  #woven = 0;
  #content = 0;
  #weaving = false;
  #place: Place | undefined;
  /** Whether the visitor chose the place. */
  #placed = false;

  constructor() {
    this.#word.addEventListener("input", () => this.#newWord());
    for (const event of ["keyup", "click"]) {
      // Of a text the part before the cursor is woven.
      this.#word.addEventListener(event, () => this.#shown && !this.#shown.task && this.#changed());
    }
    byId("loom-form", HTMLFormElement).addEventListener("submit", (event) => {
      event.preventDefault();
      this.#newWord();
    });
    byId("time-play", HTMLButtonElement).addEventListener("click", () => {
      this.#decided = true;
      this.#player.toggle();
    });
    const speed = byId("time-speed", HTMLSelectElement);
    speed.addEventListener("change", () => {
      this.#player.speed = Number(speed.value);
    });
    this.#switch.addEventListener("click", () => {
      this.#decided = true;
      if (this.#shown === this.#live) this.#go(this.#recording!, this.#recording!.steps);
      else this.#goLive();
    });
    listen(this.#drawing, {
      chosen: () => this.#place,
      choose: (place) => this.#choose(place),
      cut: (head) => this.#card.toggle(head),
      brief: (woven, place) => this.#card.brief(woven, place, this.#off),
    });
  }

  get #shown(): Track | undefined {
    return this.#player.track;
  }

  /** Plays the recording until the visitor's own model has caught up. */
  async playRecording(): Promise<void> {
    if (this.#loading) return;
    this.#loading = true;
    const begin = (track: Track) => {
      this.#recording = track;
    };
    const more = () => {
      if (!this.#shown) {
        this.#go(this.#recording!, 0);
        if (this.#awaited) this.showRecording(this.#awaited.step, this.#awaited.cut);
      } else if (this.#shown === this.#recording) this.#refresh();
      this.#timeline.refresh();
    };
    // Without it the stage waits for the visitor's own run.
    await loadRecording(begin, more).catch(() => this.say("The recording did not load."));
  }

  /** Follows a run from now on. */
  async take(training: Training): Promise<void> {
    const track = await liveTrack(training);
    if (!track) {
      this.#next = undefined;
      this.say(TOO_LARGE);
    } else if (!this.#next) this.say("");
    if (this.#live) this.#second.over(this.#live);
    this.#live = track;
    this.#decided = false;
    this.#captions();
  }

  /** Cuts these heads alone, by `headAt`; a model without one of them has nothing to cut there. */
  cut(heads: readonly number[]): void {
    const shape = this.#shown?.snapshots[0]?.shape;
    if (!shape || (heads.length === 0 && this.#off.size === 0)) return;
    this.#off = new Set(heads.filter((head) => head < shape.layers * shape.heads));
    this.#changed();
  }

  /** Says something beside what is shown. */
  say(text: string): void {
    const said = byId("loom-said", HTMLElement);
    // Which may be on what was offered there.
    handOn(said, this.#drawing.canvas);
    said.textContent = text;
  }

  /** Offers something after what is said. */
  offer(label: string, act: () => void): void {
    const button = make("button", "", label);
    button.type = "button";
    button.addEventListener("click", () => {
      this.say("");
      act();
    });
    byId("loom-said", HTMLElement).append(" ", button);
  }

  /** The next run is shown from its beginning, with these heads cut; undefined: as any other. */
  shows(cut: readonly number[] | undefined): void {
    this.#next = cut;
  }

  /** Whether the weights of a step are wanted; those of the last one for now always are. */
  due(step: number, last: boolean): boolean {
    if (last) return this.#live !== undefined && step > this.#live.newest;
    return this.#live?.due(step, performance.now() - this.#taken) ?? false;
  }

  /** The run's weights after a step, as `model.save` gives them in 16 bits. */
  add(training: Training, step: number, file: Uint8Array): void {
    const shape = weavable(training.settings.config);
    if (!this.#live || !shape) return;
    const halves = numbersOf(shape, file, new Uint16Array(sizeOf(shape)));
    this.#live.add(new Snapshot(step, shape, halves));
    this.#taken = performance.now();
    if (this.#shown === this.#live) this.#refresh();
    else this.#maybeLive();
  }

  /** What happens in the run. */
  show(event: TrainingEvent): void {
    if (event.type === "validation") this.#live?.validate(event.step, event.loss);
    if (event.type !== "step" || !this.#live) return;
    this.#live.learn(event.step, event.loss);
    this.#live.milliseconds += event.milliseconds ?? 0;
    if (this.#shown === this.#live) this.#timeline.refresh();
    else this.#captions();
  }

  /** The run trains no more. */
  end(): void {
    if (!this.#live) return;
    this.#live.end();
    this.#timeline.refresh();
    this.#captions();
  }

  /** Says anew how the model does: what becomes of the run has changed. */
  tell(): void {
    this.#captions();
  }

  /** What is shown now, for pictures and links. */
  get moment(): Moment | undefined {
    if (!this.#picture) return undefined;
    const { track, snapshot, off } = this.#picture;
    const { weave: woven } = this.#drawing;
    return {
      track,
      snapshot,
      at: this.#player.at,
      off,
      ghost: this.#ghost,
      title: byId("sentence", HTMLElement).textContent,
      caption: byId("story", HTMLElement).textContent,
      squares: byId("squares-title", HTMLElement).textContent,
      marks: track.asked(snapshot.step, keyOf(off))?.marks,
      map: track.task === "sort" ? this.#numberLine.canvas : undefined,
      word: woven ? this.#word.value : "",
      chosen: this.#placed ? this.#place?.at : undefined,
      copy: (kit, width, height) => this.#drawing.copy(kit, width, height),
    };
  }

  /** Weaves a text as if it was typed. */
  weaveText(text: string): void {
    this.#wanted = text;
    this.#word.value = text;
    this.#newWord();
  }

  /** Shows a step of the recording with these heads cut, and stands still there. */
  showRecording(step: number, cut: readonly number[] = []): void {
    this.#awaited = { step, cut };
    const recording = this.#recording;
    if (recording && this.#shown !== recording) this.#go(recording, step);
    this.goTo(step);
    this.cut(cut);
    if (recording) this.#awaited = undefined;
  }

  /** Shows a step, and stands still there. */
  goTo(step: number): void {
    this.#decided = true;
    this.#player.stop(step);
    this.#refresh();
  }

  /** Without a GPU the recording is all there is; everything else works on it. */
  withoutGpu(): void {
    this.#live = undefined;
    this.#captions();
  }

  // What is shown.

  /** Shows a run from a step on. */
  #go(track: Track, at: number): void {
    const before = this.#shown;
    this.#ghost = track === this.#live ? this.#ghostOf(track, before) : undefined;
    this.#player.go(track, at);
    if (before?.name !== track.name) this.#newTask(track);
    if (before?.questions !== track.questions) this.#squares.start(track.questions);
    this.#off = new Set();
    this.#placed = false;
    this.#second.offer(track, this.#recording);
    this.#beside();
    this.#snapshot = undefined;
    this.#picture = undefined;
    this.#refresh();
  }

  /** Time is that of both looms. */
  #beside(): void {
    const { track } = this.#second;
    this.#player.beside = track;
    if (this.#shown) this.#timeline.show(this.#shown, this.#ghost, track);
  }

  /** What is drawn in grey behind a run: the run before, or the recording of the same task. */
  #ghostOf(track: Track, before: Track | undefined): Track | undefined {
    if (before && before !== track && before.name === track.name) return before;
    return this.#recording?.name === track.name ? this.#recording : undefined;
  }

  #newTask({ task, example, questions }: Track): void {
    this.#word.value = task === "reverse" && this.#wanted ? this.#wanted : example;
    byId("loom-word-name", HTMLElement).textContent = task
      ? tasks[task].asks
      : "How a text begins; it goes on from the cursor";
    byId("squares-title", HTMLElement).textContent = task
      ? `${questions.length} ${NOUNS[task]} it has never seen`
      : `${questions.length} letters of a text it has never seen`;
    this.#numberLine.show(task === "sort");
  }

  /** Goes to the visitor's own run once it is ahead of the recording, or that has ended. */
  #maybeLive(): void {
    const [shown, live] = [this.#shown, this.#live];
    if (!live || live.newest < 0 || shown === live) return;
    const ahead = live.newest > this.#player.at && live.newest > AHEAD;
    const rested = this.#player.rested > STAY;
    // What the visitor has chosen does not wait for the recording.
    const other =
      !shown || shown !== this.#recording || live.name !== shown.name || this.#next !== undefined;
    if (other || (!this.#decided && (ahead || rested))) this.#goLive();
  }

  #goLive(): void {
    const live = this.#live!;
    // A run that is quicker than the show is shown from its beginning.
    const quick = live.newest / Math.max(1, live.milliseconds) > live.steps / (SHOW * 1000);
    const cut = this.#next;
    this.#next = undefined;
    this.#go(live, quick || cut ? 0 : live.newest);
    if (cut) this.cut(cut);
  }

  /**
   * Shows the weights of the present step, if they are others.
   *
   * @param moved - whether the handle has.
   */
  #refresh(moved = true): void {
    if (moved) this.#timeline.at = this.#player.at;
    const stand = this.#stand;
    const snapshot = stand && toShow(stand, this.#snapshot, performance.now() - this.#since);
    if (!snapshot) return;
    if (snapshot === this.#snapshot) {
      if (moved && this.#second.stale(besideAt(stand.track, snapshot, stand.at))) this.#wants();
      return;
    }
    this.#snapshot = snapshot;
    this.#since = performance.now();
    this.#wants();
  }

  get #stand(): Stand | undefined {
    const { track, at, playing } = this.#player;
    return track && { track, at, playing, key: keyOf(this.#off), took: this.#asker.took };
  }

  #newWord(): void {
    this.#placed = false;
    this.#changed();
  }

  /** Weaves and asks anew: run, text or cut heads are others. */
  #changed(): void {
    this.#content++;
    this.#wants();
  }

  /** Weaves and asks anew. */
  #wants(): void {
    this.#version++;
    void this.#asker.ask();
    if (!this.#weaving) void this.#weave();
  }

  async #weave(): Promise<void> {
    this.#weaving = true;
    while (this.#woven !== this.#version && this.#snapshot) {
      const [version, content] = [this.#version, this.#content];
      // It has no width while a real model has the stage.
      const narrow = (this.#drawing.canvas.clientWidth || NARROW) < NARROW;
      const cursor = this.#word.selectionStart ?? 0;
      const { value: text } = this.#word;
      const picture = { track: this.#shown!, snapshot: this.#snapshot, off: this.#off };
      const { track, off, snapshot } = picture;
      const laid = lay(track, text, cursor, narrow);
      // Newer weights alone wait for their turn: otherwise a quick run would be seen at its end only.
      const stale = () => content !== this.#content;
      const woven = await this.#weaver.weave(snapshot, { ...laid, off }, stale);
      this.#woven = version;
      if (!woven) continue;
      const last = this.#ghost?.snapshots.at(-1);
      // The grey run says its answer to the same problem, at its end.
      const question = { prompt: laid.given, wanted: new Uint8Array(laid.adds + 1) };
      const ghost = last && laid.answers ? [...answer(last.weights, question).given] : [];
      this.#drawing.show(woven, { wanted: laid.wanted, ghost }, off);
      this.#picture = picture;
      this.#timeline.step = snapshot.step;
      if (track.task === "sort") this.#numberLine.draw(snapshot.weights);
      this.#changedMarks();
      this.#tell(woven);
      const at = besideAt(track, snapshot, this.#player.at);
      await this.#second.weave(this.#weaver, at, { text, cursor, narrow }, stale);
      void this.#asker.ask();
    }
    this.#weaving = false;
  }

  // What is said.

  #tell(woven: Weave): void {
    if (!this.#placed || this.#place!.at >= woven.tokens.length) {
      this.#place = { at: telling(woven) };
      this.#placed = false;
    }
    this.#drawing.chosen = this.#placed ? this.#place : undefined;
    this.#drawing.refresh();
    this.#card.show(woven, this.#place!, this.#off);
    this.onChange();
    const read = spelt(woven.tokens.slice(0, woven.given));
    const said = spelt(woven.tokens.slice(woven.given));
    const { layers, heads } = woven.shape;
    this.#drawing.canvas.setAttribute(
      "aria-label",
      `The loom at step ${whole(this.#picture?.snapshot.step ?? 0)}: the model reads ${read} and says ${said || "nothing"}. ` +
        `Layers: ${layers}, heads in each: ${heads}. Arrow keys choose a letter, and up and down a thread of it, whose head Enter cuts or puts back.`,
    );
  }

  /** What is asked next, if its answers take these milliseconds. */
  #toAsk(milliseconds: number): Exam | undefined {
    const stand = this.#stand;
    if (!stand || stand.track.questions.length === 0) return undefined;
    const snapshot = toAsk(stand, this.#player.after(milliseconds));
    if (!snapshot) return this.#second.unasked;
    return { snapshot, questions: stand.track.questions, off: this.#off };
  }

  /** How the model on the loom did, or that before it. */
  get #asked() {
    const { track, snapshot, off } = this.#picture ?? {};
    return track?.asked(snapshot!.step, keyOf(off!));
  }

  /** The weights whose answers are in the squares. */
  get #exam(): Exam | undefined {
    if (!this.#picture) return undefined;
    const { track, snapshot, off } = this.#picture;
    return { snapshot: this.#asked?.snapshot ?? snapshot, questions: track.questions, off };
  }

  /** Squares and sentences of what is on the loom. */
  #changedMarks(): void {
    if (!this.#picture) return;
    const asked = this.#asked;
    const ghost = this.#ghost?.snapshots.at(-1)?.marks.get("")?.right;
    this.#squares.show(asked?.marks.right ?? [], ghost);
    this.#second.tell();
    this.#captions();
  }

  #captions(): void {
    const [shown, live] = [this.#shown, this.#live];
    byId("time-play", HTMLElement).textContent = this.#player.playing ? "Pause" : "Play";
    const other = live && live.newest >= 0 && live.name === this.#recording?.name;
    if (!other) handOn(this.#switch, this.#drawing.canvas);
    this.#switch.hidden = !other;
    this.#switch.textContent = shown === live ? "See the recording" : "See your own model";
    if (!this.#picture) return;
    showWords(this.#picture, this.#squares, {
      asked: this.#asked,
      live,
      ghost: this.#ghost,
      seconds: SHOW / this.#player.speed,
    });
    this.onChange();
  }

  /** Says what a square is. */
  #point(index: number | undefined): void {
    const exam = this.#exam;
    byId("square-note", HTMLElement).textContent =
      exam && index !== undefined
        ? squareWords(exam, index, spelt, this.#shown?.task !== undefined)
        : "";
  }

  /** Weaves the word of a square. */
  #pick(index: number): void {
    const question = this.#shown?.questions[index];
    if (!question) return;
    const text = new TextDecoder().decode(question.prompt);
    this.#word.value = this.#shown?.task ? text.slice(0, -1) : text;
    this.#word.setSelectionRange(this.#word.value.length, this.#word.value.length);
    this.#newWord();
  }

  // What is pointed at and chosen.

  get #chosen(): { weave: Weave; place: Place } | undefined {
    const { weave: woven } = this.#drawing;
    return woven && this.#place && { weave: woven, place: this.#place };
  }

  #choose(place: Place): void {
    this.#place = place;
    this.#placed = true;
    const { weave: woven } = this.#drawing;
    if (woven) this.#tell(woven);
  }
}
