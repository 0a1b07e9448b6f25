import type { JudgedPiece } from "../stories/score.ts";
import type { AnsweredPiece } from "./tasks/answers.ts";

/** A token as a model draws it. */
export interface Drawn {
  readonly token: number;
  readonly logprob: number;
  readonly alternatives?: readonly { readonly token: number; readonly logprob: number }[];
}

/** What a sample needs of a model, be it here or in a worker. */
export interface Writer {
  generate(
    prompt: readonly number[],
    options: {
      maxTokens: number;
      temperature: number;
      seed: number;
      alternatives?: number;
      stopTokens?: readonly number[];
      signal?: AbortSignal;
    },
  ): AsyncIterable<Drawn>;
}

/** A part of a sample; text other than stories and answers has no verdict. */
export type SamplePiece = JudgedPiece | AnsweredPiece | { text: string; verdict?: undefined };

export interface SampleOptions {
  /** Tokens to make. */
  length: number;
  /** Tokens the model was trained to see at once. */
  context: number;
  temperature: number;
  seed: number;
  /** How many of the likeliest tokens come with each. */
  alternatives?: number | undefined;
  /** Tokens before which it ends. */
  stopTokens?: readonly number[] | undefined;
  signal?: AbortSignal | undefined;
}

/**
 * Continues the prompt, also beyond the model's context: when that is full, the second half of it becomes the prompt
 * of what follows.
 */
export async function* sampleTokens(
  model: Writer,
  prompt: Uint32Array,
  { length, context, temperature, seed, alternatives, stopTokens, signal }: SampleOptions,
): AsyncGenerator<Drawn, void, undefined> {
  let history = Array.from(prompt);
  let made = 0;
  for (let round = 0; made < length; round++) {
    if (history.length > (context * 3) / 4) history = history.slice(-Math.max(1, context >> 1));
    const maxTokens = Math.min(length - made, Math.max(1, context - history.length));
    const options = {
      maxTokens,
      temperature,
      seed: (seed + round) >>> 0,
      ...(alternatives && { alternatives }),
      ...(stopTokens && { stopTokens }),
      ...(signal && { signal }),
    };
    const wanted = made + maxTokens;
    for await (const drawn of model.generate(history, options)) {
      history.push(drawn.token);
      made++;
      yield drawn;
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
  /** A byte-order mark is a character like any other: bytes are what a model has written. */
  readonly #decoder = new TextDecoder("utf-8", { ignoreBOM: true });

  push(token: number): string {
    return token > 255
      ? `${this.#decoder.decode()}\ufffd`
      : this.#decoder.decode(Uint8Array.of(token), { stream: true });
  }

  end(): string {
    return this.#decoder.decode();
  }
}

/** A token of a sample, as the page shows and keeps it. */
export type WrittenToken = {
  /** The text that it completes, which may be none: a letter such as “é” takes two bytes. */
  readonly text: string;
  /** The model's own, before temperature; absent for a prompt. */
  readonly probability?: number;
  /** The likeliest tokens in its place with their probabilities. */
  readonly alternatives?: readonly (readonly [name: string, probability: number])[];
};

const probability = (logprob: number): number => Number(Math.exp(logprob).toPrecision(2));

/**
 * The sample as text, token by token.
 *
 * @param name - what a token is called by itself.
 */
export async function* sampleText(
  model: Writer,
  prompt: Uint32Array,
  decoder: Decoder,
  name: (token: number) => Promise<string>,
  options: SampleOptions,
): AsyncGenerator<WrittenToken, void, undefined> {
  for await (const drawn of sampleTokens(model, prompt, options)) {
    const { token, logprob, alternatives = [] } = drawn;
    yield {
      text: await decoder.push(token),
      probability: probability(logprob),
      alternatives: await Promise.all(
        alternatives.map(async (one) => [await name(one.token), probability(one.logprob)] as const),
      ),
    };
  }
  const text = await decoder.end();
  if (text !== "") yield { text };
}
