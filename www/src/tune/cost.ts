/** What a fine-tuning costs, before anything is created, and why it is refused where it does not fit. */
import type { AdapterOptions, Estimate, WeightFormat } from "tinyloom/worker";
import { bytes } from "../dom.ts";
import { refusal } from "../estimates.ts";
import type { Lab } from "../lab.ts";
import { memoryLimit } from "../memory-limit.ts";
import type { BaseModel } from "./base-model.ts";

/** What the visitor chose. */
export interface TuneSettings {
  readonly adapter: Required<Pick<AdapterOptions, "rank" | "alpha" | "targets" | "seed">>;
  readonly weights: WeightFormat;
  readonly steps: number;
  readonly learningRate: number;
  readonly tokensPerStep: number;
}

/** What that costs; `refused` says why it cannot be. */
export interface TuneCost {
  readonly estimate?: Estimate;
  /** Predicted seconds of all steps; NaN where they are not known. */
  readonly seconds: number;
  readonly refused?: string;
}

/** Tokens that an answer's cache is counted with. */
const ANSWER = 256;

/**
 * Counts bytes and seconds.
 *
 * @param present - bytes of the page's own model, which stays on the GPU beside.
 */
export async function tuneCost(
  lab: Lab,
  { config, context }: BaseModel,
  { adapter, weights, steps, tokensPerStep }: TuneSettings,
  present: number,
): Promise<TuneCost> {
  const { capabilities } = lab.runtime;
  const generate = { tokens: Math.min(ANSWER, context) };
  const options = { adapter, weights, trainer: { tokensPerStep }, generate };
  let estimate: Estimate;
  try {
    estimate = await lab.estimate(config, options, capabilities);
  } catch (error) {
    return { seconds: Number.NaN, refused: `This is refused: ${(error as Error).message}` };
  }
  const seconds = ((estimate.milliseconds?.step ?? Number.NaN) * steps) / 1000;
  const words = {
    what: "This does not fit",
    advice:
      "Choose weights of fewer bits, fewer tokens per step or a smaller rank" +
      (present > 0 ? `, or reload the page without its own model (${bytes(present)}).` : "."),
  };
  const refused = refusal(estimate, memoryLimit(capabilities), words, {
    "the page's model": present,
  });
  return { estimate, seconds, ...(refused !== undefined && { refused }) };
}
