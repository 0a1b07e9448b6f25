import type { Model } from "tinyloom";

export interface SampleOptions {
  /** Bytes to make. */
  length: number;
  /** Tokens the model was trained to see at once. */
  context: number;
  temperature: number;
  seed: number;
  signal?: AbortSignal | undefined;
}

/**
 * Continues the prompt, also beyond the model's context: when that is full, the second half of it becomes the prompt
 * of what follows. Yields token ids.
 */
export async function* sampleTokens(
  model: Model,
  prompt: Uint32Array,
  { length, context, temperature, seed, signal }: SampleOptions,
): AsyncGenerator<number, void, undefined> {
  let history = Array.from(prompt);
  let made = 0;
  for (let round = 0; made < length; round++) {
    if (history.length > (context * 3) / 4) history = history.slice(-Math.max(1, context >> 1));
    const maxTokens = Math.min(length - made, Math.max(1, context - history.length));
    const options = {
      maxTokens,
      temperature,
      seed: (seed + round) >>> 0,
      ...(signal && { signal }),
    };
    const before = made;
    for await (const { token } of model.generate(history, options)) {
      history.push(token);
      made++;
      yield token;
    }
    if (made === before) return;
  }
}

/** Bytes to text as they arrive. A model with a larger vocabulary may emit an id that is no byte: shown as U+FFFD. */
export class ByteStream {
  readonly #decoder = new TextDecoder();

  push(token: number): string {
    return token > 255
      ? `${this.#decoder.decode()}\ufffd`
      : this.#decoder.decode(Uint8Array.of(token), { stream: true });
  }

  end(): string {
    return this.#decoder.decode();
  }
}

/** The whole sample as text. */
export async function sampleText(
  model: Model,
  prompt: Uint32Array,
  options: SampleOptions,
): Promise<string> {
  const stream = new ByteStream();
  let text = "";
  for await (const token of sampleTokens(model, prompt, options)) text += stream.push(token);
  return text + stream.end();
}
