/** Generation of several prompts at once; loaded when it is needed. */

import { type TextOf, textOf } from "./decoding.js";
import { throwIfAborted } from "./error.js";
import {
  type BatchOptions,
  type BatchPrompt,
  type BatchToken,
  GENERATE,
  type GenerateCall,
  generateCall,
} from "./generate.js";
import { end, type Handle, type Queue } from "./handle.js";
import type { Adapter } from "./lora.js";
import { check, inspect, invalid, type Rules, show } from "./options.js";
import type { RawBatch, RawModel } from "./raw.js";
import type { TokenIds } from "./tokens.js";

/** What `model.generateBatch` was called with, and whose call it is. */
export interface BatchCall {
  readonly prompts: unknown;
  readonly options: unknown;
  readonly vocabulary: number;
  /** The format in which the model holds its matrices. */
  readonly weights: string;
  readonly queue: Queue;
  over(adapter: Adapter | undefined): Handle<RawModel>;
}

const WHERE = "generateBatch";

const { alternatives: _, bias: __, promptLookup: ___, ...BATCH } = GENERATE;
const { tokenizer, kvCache, weights, adapter, signal, ...OWN } = BATCH;

/** The checked options of the call, and the calls of `generate` that give the same texts. */
function calls({ prompts, options, vocabulary }: BatchCall): [BatchOptions, GenerateCall[]] {
  const shared = check(WHERE, options, BATCH as Rules<BatchOptions>);
  if (!Array.isArray(prompts) || prompts.length === 0) {
    throw invalid(
      `${WHERE} takes an array of prompts, not ${show(prompts)}; give at least one prompt`,
    );
  }
  const all = (prompts as readonly unknown[]).map((one, index) => {
    const name = `prompts[${index}]`;
    const given = isPrompt(one) ? one : { prompt: one as TokenIds };
    const { prompt, ...rest } = inspect(WHERE, () => ({ ...given }));
    const own = check(`${WHERE}: ${name}`, rest, OWN as Rules<Omit<BatchPrompt, "prompt">>);
    return generateCall(prompt, { ...shared, ...own }, vocabulary, WHERE, name);
  });
  return [shared, all];
}

const isPrompt = (one: unknown): one is BatchPrompt =>
  typeof one === "object" && one !== null && !Array.isArray(one) && !ArrayBuffer.isView(one);

/** One of the texts. */
class Text {
  readonly #call: GenerateCall;
  readonly #drawn: number[] = [];
  readonly #text: TextOf | undefined;
  ended = false;

  constructor(call: GenerateCall, text: TextOf | undefined) {
    this.#call = call;
    this.#text = text;
  }

  get tokens(): number[] {
    return [...this.#call.ids, ...this.#drawn];
  }

  drew(token: number): void {
    this.#drawn.push(token);
  }

  /** The module's own options, behind what has been drawn. */
  options(weights: string): object {
    const drawn = this.#drawn.length;
    const maxTokens = this.ended ? drawn : this.#call.maxTokens;
    return { weights, ...JSON.parse(this.#call.json), maxTokens, drawn };
  }

  /** The tokens that a draw decides, with their text; it may end the text. */
  *given(index: number, token: number, logprob: number): Generator<BatchToken> {
    if (token < 0) {
      this.ended = true;
      for (const one of this.#text?.end() ?? []) yield { index, ...one };
    } else if (this.#text) {
      for (const one of this.#text.push({ token, logprob })) yield { index, ...one };
      this.ended = this.#text.stopped;
    } else {
      yield { index, token, logprob };
    }
  }
}

/** {@link Model.generateBatch}. */
export async function* generatedBatch(
  call: BatchCall,
): AsyncGenerator<BatchToken, void, undefined> {
  const [{ signal, tokenizer, adapter }, all] = calls(call);
  throwIfAborted(signal, WHERE);
  const handle = call.over(adapter);
  const texts: Text[] = [];
  for (const one of all) {
    texts.push(new Text(one, tokenizer && (await textOf(tokenizer, one.stop))));
  }
  let by: RawModel | undefined;
  let batch: RawBatch | undefined;
  /** The first time, or after a lost device: then behind the tokens that were drawn before. */
  const started = (raw: RawModel): RawBatch => {
    if (batch && by === raw) return batch;
    if (batch) end(batch);
    batch = undefined;
    by = raw;
    const tokens = texts.map((text) => text.tokens);
    const lengths = Uint32Array.from(tokens, ({ length }) => length);
    const options = JSON.stringify(texts.map((text) => text.options(call.weights)));
    batch = raw.batch(Uint32Array.from(tokens.flat()), lengths, options);
    return batch;
  };
  const next = () =>
    handle.run(async (raw) => {
      const numbers = await started(raw).next();
      for (const [index, token] of triples(numbers)) if (token >= 0) texts[index]?.drew(token);
      return numbers;
    }, signal);
  try {
    for (;;) {
      throwIfAborted(signal, WHERE);
      const numbers = await next();
      if (numbers.length === 0) return;
      for (const [index, token, logprob] of triples(numbers)) {
        const text = texts[index] as Text;
        if (text.ended) continue;
        for (const given of text.given(index, token, logprob)) {
          throwIfAborted(signal, WHERE);
          yield given;
        }
        if (text.ended) batch?.end(index);
      }
    }
  } finally {
    await call.queue.run(() => batch && end(batch));
  }
}

function* triples(numbers: Float64Array): Generator<[number, number, number]> {
  for (let at = 0; at < numbers.length; at += 3) {
    yield [numbers[at] as number, numbers[at + 1] as number, numbers[at + 2] as number];
  }
}
