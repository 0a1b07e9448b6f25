// What a page does in one cycle of the soak.
import { sha256 } from "../api/bodies/kit.mjs";
import { all, hash, TEXT } from "./lost-stage.mjs";

/** Of each file, by the browser itself: a loop over its bytes takes seconds where V8 does not optimise. */
async function digests(files) {
  const found = [];
  for (const [name, bytes] of Object.entries(files)) {
    found.push([name, await sha256(bytes)]);
  }
  return Object.fromEntries(found);
}

export class Soak {
  /**
   * @param counters - gives what the runtime holds.
   * @param setup - `{ config, tokens, seed }`: of the model, of a step, of all that is random.
   */
  constructor(tinyloom, runtime, counters, setup) {
    Object.assign(this, { tinyloom, runtime, counters, setup });
  }

  /** Makes a model and a trainer, trains, generates, saves, resumes what was saved, and frees all. */
  async cycle(steps) {
    const { Model, Trainer, Dataset, ByteTokenizer } = this.tinyloom;
    const { config, tokens, seed } = this.setup;
    const began = performance.now();
    const data = await Dataset.fromText(TEXT, new ByteTokenizer(), { sequenceLength: 64, seed });
    const model = await Model.create(this.runtime, config, { seed });
    const trainer = await Trainer.create(model, { tokensPerStep: tokens, totalSteps: steps, seed });
    let losses = "";
    const train = async (count, stepsAhead) => {
      for await (const { loss, gradNorm } of trainer.run(data, { steps: count, stepsAhead })) {
        losses = `${hash(`${losses} ${loss} ${gradNorm}`)}`;
      }
    };
    await train(steps >> 1, 1);
    const drawn = await this.#drawn(model, seed);
    const half = await trainer.save();
    await train(steps - (steps >> 1), 0);
    const { loss } = await trainer.evaluate(data);
    const files = await digests(await trainer.save());
    model.free();
    await this.#returned();
    const resumed = await Trainer.resume(this.runtime, half);
    const again = await this.#drawn(resumed.model, seed);
    if (again !== drawn) throw new Error(`what was saved draws ${again}, and before ${drawn}`);
    resumed.model.free();
    await this.#returned();
    const { gpuBytes, wasmBytes } = this.counters();
    const bits = hash(JSON.stringify([losses, drawn, loss, files]));
    return { bits, gpuBytes, wasmBytes, milliseconds: Math.round(performance.now() - began) };
  }

  /** What is freed ends in its turn: waits for it, for five seconds at most. */
  async #returned() {
    for (let wait = 0; wait < 500 && this.counters().gpuBytes > 0; wait++) {
      await new Promise((next) => setTimeout(next, 10));
    }
  }

  async #drawn(model, seed) {
    const prompt = Uint32Array.from(new TextEncoder().encode(TEXT.slice(0, 20)));
    const drawn = await all(model.generate(prompt, { maxTokens: 30, seed }));
    return drawn.map(({ token }) => token).join();
  }
}
