/** What a sample needs of a model, be it here or in a worker. */
export interface Writer {
  generate(
    prompt: readonly number[],
    options: {
      maxTokens: number;
      temperature: number;
      seed: number;
      stopTokens?: readonly number[];
      signal?: AbortSignal;
    },
  ): AsyncIterable<{ readonly token: number }>;
}

export interface SampleOptions {
  /** Tokens to make. */
  length: number;
  /** Tokens the model was trained to see at once. */
  context: number;
  temperature: number;
  seed: number;
  /** Tokens before which it ends. */
  stopTokens?: readonly number[] | undefined;
  signal?: AbortSignal | undefined;
}

/**
 * Continues the prompt, also beyond the model's context: when that is full, the second half of it becomes the prompt
 * of what follows. Yields token ids.
 */
export async function* sampleTokens(
  model: Writer,
  prompt: Uint32Array,
  { length, context, temperature, seed, stopTokens, signal }: SampleOptions,
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
      ...(stopTokens && { stopTokens }),
      ...(signal && { signal }),
    };
    const wanted = made + maxTokens;
    for await (const { token } of model.generate(history, options)) {
      history.push(token);
      made++;
      yield token;
    }
    if (made < wanted) return; // at a stop token, or where no token fits
  }
}

/** Tokens to text as they arrive. */
export interface Decoder {
  push(token: number): string | Promise<string>;
  end(): string | Promise<string>;
}

/** Bytes to text. A model with a larger vocabulary may emit an id that is no byte: shown as U+FFFD. */
export class ByteStream implements Decoder {
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

/** The sample as text, piece by piece. */
export async function* sampleText(
  model: Writer,
  prompt: Uint32Array,
  decoder: Decoder,
  options: SampleOptions,
): AsyncGenerator<string, void, undefined> {
  for await (const token of sampleTokens(model, prompt, options)) yield decoder.push(token);
  yield decoder.end();
}
