// What the bodies of tinyloom/worker share.
import { config, trainerOptions } from "../../api/bodies/kit.mjs";

/** A trainer of a new model. */
export async function make(tinyloom, runtime, options = trainerOptions) {
  const model = await tinyloom.Model.create(runtime, config, { seed: 42 });
  return tinyloom.Trainer.create(model, options);
}

export const withoutTime = ({ milliseconds, ...rest }) => rest;
