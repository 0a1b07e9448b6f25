/** Two claims that a visitor can test: a lost GPU loses nothing, and a seed gives the same weights each time. */
import type { RecoveryState } from "tinyloom/worker";
import { byId, make } from "../dom.ts";
import { disable } from "../focus.ts";
import type { Lab } from "../lab.ts";
import { hashOfWeights, PROOF_STEPS } from "../proof.ts";
import type { Session } from "../session.ts";
import { LossWait } from "../simulated-loss.ts";
import { fill, tableRow } from "../table.ts";
import type { Training } from "../training.ts";
import { attemptNoting, showError } from "./status.ts";

type Proving = Pick<Session<unknown, unknown, unknown>, "proving" | "prove" | "proved">;
type Recovered = Extract<RecoveryState, { state: "recovered" }>;

/** A loss as it is, to the last digit. */
const exactly = (loss: number | null): string => (loss === null ? "not finite" : String(loss));

export class ProofsPanel {
  readonly #plug = byId("pull-plug", HTMLButtonElement);
  readonly #prove = byId("prove", HTMLButtonElement);
  readonly #plugNote = byId("plug-note", HTMLElement);
  readonly #proofNote = byId("proof-note", HTMLElement);
  #lab: Lab | undefined;
  #training: Training | undefined;
  readonly #wait = new LossWait();
  #sameAdapter = true;
  #busy = false;

  readonly #session: Proving;

  /** @param session - is told when a proof begins and ends. */
  constructor(session: Proving) {
    this.#session = session;
    this.#plug.addEventListener("click", () => {
      this.#wait.start();
      this.#enable();
      this.stepped();
    });
    this.#prove.addEventListener("click", () => void this.#twice());
  }

  start(lab: Lab, training: Training): void {
    this.#lab = lab;
    this.#training = training;
    this.#wait.begin(training.step);
    this.#enable();
  }

  /** The step of the last snapshot; where there is none yet, the one at which the run went on. */
  get snapshot(): number {
    return this.#wait.snapshot;
  }

  /** There is no GPU any more. */
  end(): void {
    this.#training = undefined;
    this.#wait.stop();
    this.#enable();
  }

  /** Whether the run trains now: only then can the GPU be lost in the middle of it. */
  set training(value: boolean) {
    this.#busy = value;
    if (!value) this.#wait.stop();
    this.#enable();
  }

  /** A step is done: pulls the plug if that was asked for and enough steps would be done twice. */
  stepped(): void {
    if (!this.#training || !this.#lab || !this.#wait.waiting) return;
    const { step } = this.#training;
    if (!this.#wait.pulls(step)) {
      this.#plugNote.textContent = this.#wait.words;
      return;
    }
    this.#plugNote.textContent = `Pulled after step ${step}.`;
    this.#lab.runtime.simulateLoss().catch(showError);
  }

  /** What becomes of a lost device. */
  recovery(state: RecoveryState): void {
    // While it proves, snapshots are of other models.
    const [step] = state.state === "snapshot" ? state.steps : [];
    if (step !== undefined && !this.#session.proving) {
      this.#wait.snapshotted(step);
      this.#plugNote.dataset["snapshot"] = String(step);
    }
    if (state.state === "lost") this.#plugNote.textContent = "The GPU device is gone.";
    if (state.state === "waiting") this.#plugNote.textContent = state.message;
    if (state.state === "reopened") {
      this.#sameAdapter = state.sameAdapter;
      this.#plugNote.textContent = "Another device is open. The model comes back.";
    }
    if (state.state === "recovered") this.#back(state);
    if (state.state === "failed") this.#plugNote.textContent = "The GPU does not come back.";
  }

  #back({ losses, milliseconds }: Recovered): void {
    const rows = losses.map(({ step, loss, repeated }) => {
      const difference = loss === null || repeated === null ? "–" : String(repeated - loss);
      return tableRow(String(step), exactly(loss), exactly(repeated), difference);
    });
    const heads = ["Step", "Loss before", "Loss again", "Difference"];
    fill(byId("twice", HTMLTableElement), heads, rows);
    byId("twice-scroll", HTMLElement).hidden = rows.length === 0;
    const same = losses.every(({ loss, repeated }) => Object.is(loss, repeated));
    const adapter = this.#sameAdapter
      ? ""
      : " It is another adapter, whose kernels may round otherwise.";
    const verdict = same
      ? "Both losses of each are equal to the last bit."
      : "Some losses differ: see below.";
    this.#plugNote.textContent =
      `Back after ${(milliseconds / 1000).toFixed(1)} s, from the state of step ${this.#wait.snapshot}. ` +
      `${losses.length} steps were done twice. ${verdict}${adapter}`;
  }

  async #twice(): Promise<void> {
    const [lab, training] = [this.#lab, this.#training];
    if (!lab || !training) return;
    this.#session.prove();
    const hashes: string[] = [];
    const list = byId("hashes", HTMLElement);
    list.replaceChildren();
    await attemptNoting(this.#proofNote, "That did not work.", async () => {
      for (const name of ["first", "second"]) {
        const progress = (step: number, loss: number) => {
          this.#proofNote.textContent = `The ${name} model: step ${step} of ${PROOF_STEPS}, loss ${loss.toFixed(3)}.`;
        };
        const hash = await hashOfWeights(lab, training, progress);
        hashes.push(hash);
        list.append(make("dt", "", `${name} model`), make("dd", "", make("code", "", hash)));
      }
      const same = hashes[0] === hashes[1];
      this.#proofNote.textContent = same
        ? `The same: after ${PROOF_STEPS} steps each, every bit of both models' weights is equal.`
        : "They differ. That must not be: please report it with your browser and GPU.";
    });
    this.#session.proved();
  }

  #enable(): void {
    const ready = this.#training !== undefined;
    disable(this.#plug, !ready || !this.#busy || this.#wait.waiting);
    disable(this.#prove, !ready || this.#busy || this.#session.proving);
  }
}
