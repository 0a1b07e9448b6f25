// What the demo page uses of workloads.mjs.
import type { ModelConfig } from "tinyloom";

/** A measured row, as `bench/results` has it. */
export interface Row {
  readonly workload: string;
  readonly tokensPerSecond: number;
  readonly milliseconds?: number;
  readonly [field: string]: unknown;
}

export declare const CONFIGS: {
  readonly [name: string]: { readonly tokens: number; readonly config: ModelConfig };
};

/** @param tinyloom - the package, or what `tinyloom/worker` connects to. */
export declare function train(
  tinyloom: object,
  runtime: object,
  name: string,
  options?: { steps?: number },
): Promise<Row>;

export declare function decode(
  tinyloom: object,
  runtime: object,
  name: string,
  options?: { tokens?: number },
): Promise<Row>;
