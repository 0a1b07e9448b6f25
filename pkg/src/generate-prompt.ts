/** What a generation begins with, where it takes a tokenizer or a bias. */

import type { Call } from "./generate-tokens.js";
import type { GeneratedToken } from "./generate-types.js";
import { promptTokens } from "./prompt-tokens.js";
import type { ResolvedConfig } from "./resolved-config.js";
import { type Biases, biases } from "./token-bias.js";
import { type Healing, healedBiases, healing } from "./token-healing.js";
import { withText } from "./token-text.js";

type Tokens = AsyncGenerator<GeneratedToken, void, undefined>;

interface Begun {
  /** The prompt. */
  readonly ids: Uint32Array;
  readonly biases: Biases | undefined;
  readonly withText: ((tokens: Tokens) => Tokens) | undefined;
  /** What draws the end of the prompt anew. */
  readonly healing: Healing | undefined;
}

export async function begun(call: Call, config: ResolvedConfig): Promise<Begun> {
  const { tokenizer, bias, stop, skipSpecialTokens, heal, prompt } = call;
  const whole = await promptTokens(prompt, tokenizer, config, call);
  const size = config.vocab_size;
  const healed =
    heal && tokenizer ? await healing(tokenizer, whole, size, call.stopTokens) : undefined;
  const ids = healed?.kept ?? whole;
  const own = bias && biases(bias, config, { ...call, ids });
  // A prompt of text goes on. After a prompt of tokens a text begins, as it does after the prompt of a chat.
  const after = heal || typeof prompt === "string" ? ids : undefined;
  const asked = { stop, skipSpecialTokens, after, again: healed?.removed };
  return {
    ids,
    biases: healed ? healedBiases(own || undefined, healed) : own || undefined,
    withText: tokenizer && withText(tokenizer, asked, call),
    healing: healed,
  };
}
