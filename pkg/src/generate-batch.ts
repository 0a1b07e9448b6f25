/** Generation of several prompts at once; loaded when it is needed. */

import type { Until } from "./caller-functions.js";
import { isTinyloomError, TinyloomError, throwIfAborted } from "./error.js";
import type { batchGiven, DecodedModel, GenerateCall } from "./generate-options.js";
import type { BatchPrompt, BatchToken, GenerateOptions } from "./generate-types.js";
import { models } from "./internal.js";
import { interventionsOf } from "./interventions.js";
import { check, invalid, object, show } from "./options.js";
import { promptTokens } from "./prompt-tokens.js";
import type { RawHandle } from "./raw-handle.js";
import type { RawBatch, RawModel } from "./raw-types.js";
import { type TextOf, textOf } from "./token-text.js";
import { behind, type TokenIds } from "./tokens.js";
import { watched } from "./watch.js";

/** What `model.generateBatch` was called with, the model, and itself or the adapter over it. */
export type BatchCall = readonly [Given, DecodedModel, RawHandle<RawModel>];

type Given = ReturnType<typeof batchGiven>;

const WHERE = "generateBatch";

/** The calls of `generate` that give the same texts. */
function calls({
  prompts,
  call,
  rules,
  seeds: _,
  interventions: _9,
  ...shared
}: Given): GenerateCall[] {
  if (!Array.isArray(prompts) || prompts.length === 0) {
    throw invalid(
      `${WHERE} takes an array of prompts, not ${show(prompts)}; give at least one prompt`,
    );
  }
  // What is for all prompts, none has for itself.
  const {
    tokenizer: _1,
    skipSpecialTokens: _2,
    kvCache: _3,
    weights: _4,
    adapter: _5,
    adapters: _6,
    signal: _7,
    interventions: _8,
    ...ownRules
  } = rules;
  // Not `map`, which leaves out what a sparse array lacks.
  return Array.from(prompts as readonly unknown[], (one, index) => {
    const name = `prompts[${index}]`;
    const { prompt, ...rest } = isPrompt(one) ? one : { prompt: one as TokenIds | string };
    const own = check<Omit<BatchPrompt, "prompt">>(`${WHERE}: ${name}`, rest, ownRules);
    const options = { ...shared, ...own } as GenerateOptions;
    try {
      return call(prompt, options, index);
    } catch (error) {
      throw named(error, name);
    }
  });
}

/** The texts of the calls, whose prompts may have to be encoded. */
async function textsOf(
  all: readonly GenerateCall[],
  model: DecodedModel,
  until: Until,
): Promise<Text[]> {
  const texts: Text[] = [];
  for (const [index, { prompt, tokenizer, stop, skipSpecialTokens, ...one }] of all.entries()) {
    try {
      const ids = await promptTokens(prompt, tokenizer, model.config, until);
      const behind = typeof prompt === "string" ? ids : undefined;
      const asked = { stop, skipSpecialTokens, behind };
      const text = tokenizer && (await textOf(tokenizer, asked, until));
      texts.push(new Text({ ...one, ids }, text));
    } catch (error) {
      throw named(error, `prompts[${index}]`);
    }
  }
  return texts;
}

/** An error of `generate`, as one of a prompt of a batch. */
function named(error: unknown, name: string): unknown {
  if (!isTinyloomError(error)) return error;
  const { code, message, cause } = error;
  const said = message.replace(/^generate(:?) /, `${WHERE}$1 ${name} `).replace(/^prompt/, name);
  return new TinyloomError(code, said, { cause });
}

const isPrompt = (one: unknown): one is BatchPrompt => object(one) === undefined;

type TextCall = Pick<GenerateCall, "maxTokens" | "json"> & { readonly ids: Uint32Array };

/** One of the texts. */
class Text {
  readonly #call: TextCall;
  readonly #drawn: number[] = [];
  readonly #text: TextOf | undefined;
  ended = false;

  constructor(call: TextCall, text: TextOf | undefined) {
    this.#call = call;
    this.#text = text;
  }

  get tokens(): Uint32Array {
    return behind(this.#call.ids, this.#drawn);
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
  ...[given, model, handle]: BatchCall
): AsyncGenerator<BatchToken, void, undefined> {
  const all = calls(given);
  const { signal } = given;
  throwIfAborted(signal, WHERE);
  const texts = await textsOf(all, model, { signal, handle });
  let by: RawModel | undefined;
  let batch: RawBatch | undefined;
  /** The first time, or after a lost device: then behind the tokens that were drawn before. */
  const started = (raw: RawModel): RawBatch => {
    if (batch && by === raw) return batch;
    batch = released(batch);
    by = raw;
    const tokens = texts.map((text) => text.tokens);
    const lengths = Uint32Array.from(tokens, ({ length }) => length);
    const options = JSON.stringify(texts.map((text) => text.options(model.weights)));
    const all = new Uint32Array(lengths.reduce((sum, length) => sum + length, 0));
    let at = 0;
    for (const one of tokens) {
      all.set(one, at);
      at += one.length;
    }
    const changed = interventionsOf(WHERE, given.interventions, raw);
    batch = raw.batch(all, lengths, options, changed);
    return batch;
  };
  const next = () =>
    handle.run(async (raw) => {
      const numbers = await watched(WHERE, signal ? { signal } : {}, (ask) =>
        started(raw).next((...place) => handle.freed || ask(...place)),
      );
      for (const [index, token] of triples(numbers)) if (token >= 0) texts[index]?.drew(token);
      return numbers;
    }, signal);
  const { queue, own, disown } = models.of(model);
  // A loop that nobody ends must not keep the texts' cache when the model is freed.
  const owned = {
    free: () => void queue.run(() => (batch = released(batch))).catch(() => undefined),
  };
  own(owned);
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
    disown(owned);
    await handle.settled();
    released(batch);
  }
}

/** Gives back what a batch holds; of a module that has panicked nothing, as the error of its call says. */
function released(batch: RawBatch | undefined): undefined {
  try {
    batch?.release();
    batch?.free();
  } catch {}
}

function* triples(numbers: Float64Array): Generator<[number, number, number]> {
  for (let at = 0; at < numbers.length; at += 3) {
    yield [numbers[at] as number, numbers[at + 1] as number, numbers[at + 2] as number];
  }
}
