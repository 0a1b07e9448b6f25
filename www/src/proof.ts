/** Trains a model twice from one seed, to show that every bit of it is the same. */
import type { Lab } from "./lab.ts";
import { newModel, newTrainer } from "./open.ts";
import type { Training } from "./training.ts";

/** Steps of each of the two. */
export const PROOF_STEPS = 50;

/** SHA-256 of bytes, in hexadecimal. */
async function sha256(bytes: BufferSource): Promise<string> {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/**
 * The hash of the weights that a new model of the training's settings has after `PROOF_STEPS` steps. Model and
 * trainer are made for it and freed.
 *
 * @param progress - hears each step.
 */
export async function hashOfWeights(
  lab: Lab,
  { settings, dataset }: Training,
  progress: (step: number, loss: number) => void,
): Promise<string> {
  const model = await newModel(lab, settings);
  try {
    const trainer = await newTrainer(lab, model, settings);
    for await (const { step, loss } of trainer.run(dataset, { steps: PROOF_STEPS })) {
      progress(step, loss);
    }
    const files = await model.save();
    return await sha256(files["model.safetensors"]);
  } finally {
    await model.free();
  }
}
