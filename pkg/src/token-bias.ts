/** What is added to the logits of tokens, by the option `bias`. */

import type { Until } from "./caller-functions.js";
import { given } from "./caller-functions.js";
import type { GenerateCall } from "./generate-options.js";
import type { GenerateOptions } from "./generate-types.js";
import { inspect, invalid, show } from "./options.js";
import type { ResolvedConfig } from "./resolved-config.js";

/** The biases of a generation. */
export interface Biases {
  /** The bias of every token, where it does not change. */
  readonly fixed: Float32Array | undefined;
  /** Gives the bias of the next token, where each token has its own. */
  next?(): Promise<Float32Array | undefined>;
  /** Notes a token that was drawn. */
  drew(token: number): void;
}

/** The biases that an option gives, as a number for each token of the vocabulary. */
export function biases(
  option: NonNullable<GenerateOptions["bias"]>,
  config: ResolvedConfig,
  call: Until & Pick<GenerateCall, "maxTokens"> & { readonly ids: Uint32Array },
): Biases {
  const vocabulary = config.vocab_size;
  if (typeof option !== "function") {
    return { fixed: numbers("bias", option, vocabulary), drew: () => undefined };
  }
  const text = Array.from(call.ids);
  // After the longest text no bias is asked for.
  const most = Math.min(text.length + call.maxTokens, config.max_position_embeddings);
  return {
    fixed: undefined,
    drew: (token) => void text.push(token),
    async next() {
      if (text.length >= most) return new Float32Array(0);
      const bias = await given("the bias function", () => option(Uint32Array.from(text)), call);
      return bias === undefined ? new Float32Array(0) : numbers("the bias given", bias, vocabulary);
    },
  };
}

export function numbers(what: string, given: unknown, vocabulary: number): Float32Array {
  const refused = (is: string, allowed: string) =>
    invalid(`generate: ${what} is ${is}; give ${allowed}`);
  return inspect("generate", () => {
    if (given instanceof Float32Array) {
      if (given.length === vocabulary) return given;
      throw refused(
        show(given),
        `vocab_size numbers, ${vocabulary}, or pairs of a token and a number`,
      );
    }
    if (!Array.isArray(given))
      throw refused(show(given), "pairs of a token and a number, or a Float32Array");
    const all = new Float32Array(vocabulary);
    for (const pair of given as unknown[]) {
      const [token, bias] = Array.isArray(pair) && pair.length === 2 ? pair : [];
      if (
        !Number.isInteger(token) ||
        token < 0 ||
        token >= vocabulary ||
        typeof bias !== "number"
      ) {
        const allowed = `pairs of a token below vocab_size, ${vocabulary}, and a number`;
        throw refused(
          Array.isArray(pair) && pair.length === 2 ? `[${pair.map(show)}]` : show(pair),
          allowed,
        );
      }
      all[token] = bias;
    }
    return all;
  });
}
