/** Plays a run that was recorded earlier, for the time until the visitor's own model begins. */
import { byId } from "./dom.ts";
import type { LearningPanel } from "./panels/learning.ts";
import type { SamplesPanel } from "./panels/samples.ts";
import type { TrainingEvent } from "./training.ts";

/** What `bench/figures/record.mjs` writes. */
export interface Recording {
  /** The day, as `2026-11-23`. */
  date: string;
  adapter: string;
  steps: number;
  tokensPerStep: number;
  /** What happened, with the milliseconds since the run began. */
  events: readonly (readonly [milliseconds: number, event: TrainingEvent])[];
}

/**
 * Milliseconds between two pictures. Where the CPU draws the page, more of them keep the driver from compiling the
 * visitor's own model.
 */
const TURN = 700;
/** How long a recording plays, in milliseconds, if it took longer. */
const LENGTH = 8000;

export class Playback {
  #stopped = false;
  #started = false;
  readonly #label = byId("recording", HTMLElement);
  readonly #learning: LearningPanel;
  readonly #samples: SamplesPanel;

  constructor(learning: LearningPanel, samples: SamplesPanel) {
    this.#learning = learning;
    this.#samples = samples;
  }

  /** Plays it, faster than it was if that took long. */
  async start(): Promise<void> {
    if (this.#started) return;
    this.#started = true;
    const recording = (await import("./recorded.json")).default as unknown as Recording;
    if (this.#stopped) return;
    const { steps, tokensPerStep } = recording;
    this.#learning.start({
      subject: "to reverse a word",
      settings: { steps, tokensPerStep },
      step: 0,
      entropy: 0,
      ofBytes: true,
      words: 256,
      scores: "problems",
    });
    this.#samples.start();
    const speed = Math.max(1, (recording.events.at(-1)?.[0] ?? 0) / LENGTH);
    const day = new Date(recording.date).toLocaleDateString("en", { dateStyle: "long" });
    const faster = speed > 1 ? `, played ${speed.toFixed(0)} times as fast` : "";
    this.#label.textContent = `A recording of ${day} on ${recording.adapter}${faster}.`;
    this.#label.hidden = false;
    await this.#play(recording, speed);
  }

  async #play({ events }: Recording, speed: number): Promise<void> {
    const began = performance.now();
    let next = 0;
    while (!this.#stopped && next < events.length) {
      for (; next < events.length; next++) {
        const [milliseconds, event] = events[next]!;
        if ((performance.now() - began) * speed < milliseconds) break;
        this.#learning.show(event);
        if (event.type === "sample") {
          this.#samples.add(event.step, event.pieces, event.tokens);
        }
      }
      await new Promise((turn) => setTimeout(turn, TURN));
    }
  }

  stop(): void {
    this.#stopped = true;
    this.#label.hidden = true;
  }
}
