/**
 * What the page has, and what becomes of its run: one state, which these named transitions change and nothing else
 * does. A transition from a state that does not have it is a defect, and throws.
 */
export type State = "idle" | "loading" | "training" | "paused" | "stopped" | "error";

/** What ends a training before its last step. */
export type Halt = "paused" | "stopped";

const RESTS = ["idle", "paused", "stopped", "error"] as const;

const TRANSITIONS = {
  /** Something is read or made. `back` returns to what was before. */
  load: { from: ["loading", ...RESTS], to: "loading" },
  /** The page is open, and has no run. */
  settle: { from: ["loading"], to: "idle" },
  train: { from: ["loading", "paused", "stopped"], to: "training" },
  pause: { from: ["loading", "training"], to: "paused" },
  /** A training is over: it is scored and kept. */
  end: { from: ["training", "paused"], to: "loading" },
  stop: { from: ["loading", "training"], to: "stopped" },
  fail: { from: ["loading", "training", ...RESTS], to: "error" },
} as const satisfies { [name: string]: { from: readonly State[]; to: State } };

export type Transition = keyof typeof TRANSITIONS;

/** A run that the page has begun by itself: it ends with the page, and is not remembered. */
export interface Guest<Run, Event> {
  readonly run: Run;
  /** How it ends, where something that happens in it ends it. */
  ends(event: Event): Halt | undefined;
  /** What is said when it has ended at a step. */
  said(step: number): string;
}

/** @typeParam Opened - what there is once the GPU is open. */
export class Session<Opened, Run, Event> {
  #state: State = "loading";
  #before: State = "idle";
  #ending = false;
  #opened: Opened | undefined;
  #left: Opened | undefined;
  #run: Run | undefined;
  #guest: Guest<Run, Event> | undefined;
  #halting: Halt | undefined;
  #proving = false;
  #wanted: (() => void) | undefined;
  readonly #changed: (state: State) => void;
  readonly #ends: () => void;

  /**
   * @param changed - hears each state, the same one again too.
   * @param ends - ends the run that trains or is paused: something else is wanted.
   */
  constructor(changed: (state: State) => void, ends: () => void) {
    this.#changed = changed;
    this.#ends = ends;
  }

  get state(): State {
    return this.#state;
  }

  /** Whether something is being made, or trains. */
  get busy(): boolean {
    return this.#state === "loading" || this.#state === "training";
  }

  /** Whether the GPU trains other models, for a proof, which uses the text of the page's run. */
  get proving(): boolean {
    return this.#proving;
  }

  /** Whether something may begin, come or go: nothing is made, trains or is proven. */
  get free(): boolean {
    return !this.busy && !this.#proving;
  }

  /** Whether a training is over, and is scored and kept. */
  get ending(): boolean {
    return this.#ending;
  }

  /** What the GPU gives; undefined before it is open, and once it is gone. */
  get opened(): Opened | undefined {
    return this.#opened;
  }

  /** What a GPU that is gone has left. */
  get left(): Opened | undefined {
    return this.#left;
  }

  /** The page's run. */
  get run(): Run | undefined {
    return this.#run;
  }

  /** The page's run, where the page has begun it by itself. */
  get guest(): Guest<Run, Event> | undefined {
    return this.#guest && this.#guest.run === this.#run ? this.#guest : undefined;
  }

  /** How the present training is to end; undefined where it goes on. */
  get halting(): Halt | undefined {
    return this.#halting;
  }

  go(transition: Transition): void {
    const { from, to } = TRANSITIONS[transition];
    // A proof needs the GPU for itself, and the run that there is.
    const waits = this.#proving && (to === "training" || transition === "load");
    if (waits || !(from as readonly State[]).includes(this.#state)) this.#refuse(transition);
    if (to === "loading" && !this.busy) this.#before = this.#state;
    this.#ending = transition === "end";
    if (to === "training") this.#halting = undefined;
    this.#become(to);
  }

  #refuse(transition: string): never {
    throw new Error(`no “${transition}” in the state “${this.#state}”`);
  }

  #become(state: State): void {
    this.#state = state;
    this.#changed(state);
    // What has called this has something to say first. Until then another thing can be wanted, or begin.
    if (this.#wanted) setTimeout(() => this.#due()?.());
  }

  /** What was being loaded did not come to be: everything is as before. */
  back(): void {
    if (this.#state === "loading") this.#become(this.#before);
  }

  /** The page's run, which has just come, stands still. It has ended if it is finished, or something else is wanted. */
  stand(finished = false): void {
    this.go(finished || this.wants ? "stop" : "pause");
  }

  /** A proof begins. Nothing else does until it is over. */
  prove(): void {
    if (!this.free) this.#refuse("prove");
    this.#proving = true;
    this.#become(this.#state);
  }

  /** The proof is over. The state may be another one by now: a GPU can be lost in it. */
  proved(): void {
    this.#proving = false;
    this.#become(this.#state);
  }

  /** The GPU is open. */
  open(opened: Opened): void {
    this.#opened = opened;
  }

  /** The GPU is gone for good. */
  lose(): void {
    this.#left = this.#opened;
    this.#opened = undefined;
  }

  /** Another run is the page's; gives the one before, which is no longer. */
  take(run: Run, guest?: Omit<Guest<Run, Event>, "run">): Run | undefined {
    const before = this.#run;
    this.#run = run;
    this.#guest = guest && { ...guest, run };
    return before;
  }

  /** The page has no run any more; gives the one that it had. */
  leave(): Run | undefined {
    const before = this.#run;
    this.#run = undefined;
    this.#guest = undefined;
    return before;
  }

  /** The training is to end after the present step. */
  halt(how: Halt): void {
    this.#halting = how;
  }

  /**
   * Does something once no run is loading, training or paused, and no proof runs. A run that trains or is paused ends for
   * it. What was wanted before is forgotten.
   */
  want(work: () => void): void {
    this.#wanted = work;
    this.#due()?.();
  }

  /** Whether something is wanted that is not done yet. */
  get wants(): boolean {
    return this.#wanted !== undefined;
  }

  /** What is wanted, once, or that the run ends for it; undefined where it has to wait. */
  #due(): (() => void) | undefined {
    const wanted = this.#wanted;
    if (!wanted || this.#proving || this.#state === "loading") return undefined;
    if (this.#state === "training" || this.#state === "paused") return this.#ends;
    this.#wanted = undefined;
    return wanted;
  }
}
