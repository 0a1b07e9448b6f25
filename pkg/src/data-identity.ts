/** Which data a trainer draws from, so that a resumed run goes on in no other. */

import type { Data } from "./data.js";
import type { DrawnData } from "./dataset-types.js";
import { invalid, show } from "./options.js";

export class DataIdentity {
  /** Describes the data that was drawn last. */
  #data: DrawnData = {};
  /** Whether that is of a run before a resume, so that other data would be a mistake. */
  #resumed = false;

  /** What the state has to say. */
  get state(): DrawnData {
    return this.#data;
  }

  /** A resumed trainer goes on in this data, at the place `cursor`. */
  resume({ dataHash, dataOptions }: DrawnData, cursor: number): void {
    this.#data = { dataHash, dataOptions };
    this.#resumed = cursor > 0;
  }

  /** A batch of the data was drawn. */
  note({ hash, draws }: Data): void {
    this.#data = { dataHash: hash, dataOptions: draws };
    this.#resumed = false;
  }

  /** Refuses other data than that of which the place was saved. */
  expectSame({ hash, draws, before }: Data, tokensPerStep: number): void {
    if (!this.#resumed) return;
    const { dataHash, dataOptions } = this.#data;
    if (dataHash !== hash) {
      throw other(
        dataHash
          ? `the resumed state drew from data with the hash ${dataHash}, and this dataset's is ${hash}`
          : "the resumed state does not say from which data it drew",
        `the same dataset${before.length > 0 && dataHash ? `, made with ${before.join(" and ")} where the run began so, as all of tinyloom 0.1 did` : ""}`,
      );
    }
    for (const name of ["sequenceLength", "validationFraction", "seed"] as const) {
      const saved = dataOptions?.[name] ?? draws[name];
      if (saved === draws[name]) continue;
      // Both are cut to the same pieces.
      if (name === "sequenceLength" && Math.min(saved, draws[name]) >= tokensPerStep) continue;
      throw other(
        `the resumed state drew with ${name} ${show(saved)}, and this dataset has ${draws[name]}`,
        "a dataset with the same options",
      );
    }
  }
}

function other(why: string, cure: string) {
  return invalid(`run: ${why}; give ${cure}, or run(dataset, { dataChanged: true }) if it changed`);
}
