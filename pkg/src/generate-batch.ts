/** Generation of several prompts at once; loaded when it is needed. */

import { drawnOver, type Over, overOf } from "./adapter-parts.js";
import type { WeightedAdapter } from "./adapter-types.js";
import type { Until } from "./caller-functions.js";
import { isTinyloomError, TinyloomError, throwIfAborted } from "./error.js";
import type { batchGiven, DecodedModel, GenerateCall } from "./generate-options.js";
import type { BatchPrompt, BatchToken, GenerateOptions } from "./generate-types.js";
import { type InnerModel, models } from "./internal.js";
import { interventionsOf, roomOf } from "./interventions.js";
import { check, invalid, object, show } from "./options.js";
import { promptTokens } from "./prompt-tokens.js";
import type { RawHandle } from "./raw-handle.js";
import type { RawBatchGeneration, RawModel } from "./raw-types.js";
import { type TextOf, textOf } from "./token-text.js";
import { promptAndDrawn, type TokenIds } from "./tokens.js";
import { watched } from "./watch.js";

type Given = ReturnType<typeof batchGiven>;

const WHERE = "generateBatch";

/** The calls of `generate` that give the same texts. */
function calls({
  prompts,
  call,
  rules,
  seeds: _,
  interventions: _7,
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
    signal: _5,
    interventions: _6,
    ...ownRules
  } = rules;
  // Not `map`, which leaves out what a sparse array lacks.
  return Array.from(prompts as readonly unknown[], (one, index) => {
    const name = `prompts[${index}]`;
    const { prompt, ...rest } = isPrompt(one) ? one : { prompt: one as TokenIds | string };
    const own = check<Omit<BatchPrompt, "prompt">>(`${WHERE}: ${name}`, rest, ownRules);
    const { adapter, adapters, ...all } = shared;
    const adapted = own.adapter || own.adapters ? {} : { adapter, adapters };
    const options = { ...all, ...adapted, ...own } as GenerateOptions;
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
      const after = typeof prompt === "string" ? ids : undefined;
      const asked = { stop, skipSpecialTokens, after };
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
  return new TinyloomError(code, said.includes(name) ? said : `${name}: ${said}`, { cause });
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
    return promptAndDrawn(this.#call.ids, this.#drawn);
  }

  drew(token: number): void {
    this.#drawn.push(token);
  }

  /** The module's own options, after what has been drawn. */
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

/** Texts that one model is read for: the base, an adapter over it, or a sum of adapters. */
interface Group {
  readonly over: Over;
  /** Their numbers in the call. */
  readonly places: number[];
}

/** The texts by what they are read with. */
function groupsOf(all: readonly GenerateCall[], model: InnerModel): Group[] {
  const groups: Group[] = [];
  for (const [index, call] of all.entries()) {
    try {
      const over = overOf(model, call);
      const group = groups.find((one) => alike(one.over[1], over[1]));
      if (group) group.places.push(index);
      else groups.push({ over, places: [index] });
    } catch (error) {
      throw named(error, `prompts[${index}]`);
    }
  }
  return groups;
}

const isSum = (by: Over[1]): by is readonly WeightedAdapter[] => Array.isArray(by);

/** Whether two texts are read with the same. */
function alike(a: Over[1], b: Over[1]): boolean {
  if (!isSum(a) || !isSum(b)) return a === b;
  const same = (one: WeightedAdapter, at: number) =>
    one?.adapter === b[at]?.adapter && (one?.scale ?? 1) === (b[at]?.scale ?? 1);
  return a.length === b.length && a.every(same);
}

type Drawn = AsyncGenerator<BatchToken, void, undefined>;

/** {@link Model.generateBatch}. */
export async function* tokensOfBatch(given: Given, model: DecodedModel): Drawn {
  const all = calls(given);
  const { signal } = given;
  throwIfAborted(signal, WHERE);
  const inner = models.of(model);
  const groups = groupsOf(all, inner);
  const texts = await textsOf(all, model, { signal, handle: inner.handle });
  const drawn = groups.map(({ over, places }) => {
    const own = places.map((place) => texts[place] as Text);
    const draw = (handle: RawHandle<RawModel>) => ofGroup(given, model, { handle, own, places });
    return { tokens: drawnOver(over, draw), texts: places.length };
  });
  yield* inTurns(drawn);
}

/**
 * Tokens of several generators in turns, as many at a time as each has texts. What is not finite ends a generator, and is
 * told when the others have ended.
 */
async function* inTurns(all: readonly { readonly tokens: Drawn; readonly texts: number }[]): Drawn {
  const running = new Set(all);
  const failed: unknown[] = [];
  try {
    while (running.size > 0) {
      for (const one of running) {
        for (let left = one.texts; left > 0 && running.has(one); left--) {
          const next = await one.tokens.next().catch((error: unknown) => {
            if (!isTinyloomError(error) || error.code !== "non-finite") throw error;
            failed.push(error);
            return { done: true } as const;
          });
          if (next.done) running.delete(one);
          else yield next.value;
        }
      }
    }
    if (failed.length > 0) throw failed[0];
  } finally {
    await endAll(all);
  }
}

/** Ends all generators. One that fails in its end keeps no other from it. */
async function endAll(all: readonly { readonly tokens: Drawn }[]): Promise<void> {
  const ended = await Promise.allSettled(all.map(({ tokens }) => tokens.return()));
  const failed = ended.find((one) => one.status === "rejected");
  if (failed) throw failed.reason;
}

/** The texts of a group, and what they are read with. */
interface GroupCall {
  readonly handle: RawHandle<RawModel>;
  readonly own: readonly Text[];
  readonly places: readonly number[];
}

/** An error of the module, which numbers the texts of a group. */
function placed(error: unknown, places: readonly number[]): unknown {
  if (!isTinyloomError(error)) return error;
  const { code, message, cause } = error;
  const said = message.replace(/prompts\[(\d+)\]/, (_, at) => `prompts[${places[Number(at)]}]`);
  return said === message ? error : new TinyloomError(code, said, { cause });
}

async function* ofGroup(
  given: Given,
  model: DecodedModel,
  { handle, own: texts, places }: GroupCall,
): Drawn {
  const { signal } = given;
  let madeOn: RawModel | undefined;
  let batch: RawBatchGeneration | undefined;
  /** The raw batch. It is made at the first call, and again after a lost device: of each prompt and its drawn tokens. */
  const started = (raw: RawModel): RawBatchGeneration => {
    if (batch && madeOn === raw) return batch;
    batch = released(batch);
    madeOn = raw;
    const tokens = texts.map((text) => text.tokens);
    const lengths = Uint32Array.from(tokens, ({ length }) => length);
    const options = JSON.stringify(texts.map((text) => text.options(model.weights)));
    const all = new Uint32Array(lengths.reduce((sum, length) => sum + length, 0));
    let at = 0;
    for (const one of tokens) {
      all.set(one, at);
      at += one.length;
    }
    const changed = interventionsOf(WHERE, given.interventions, raw, roomOf(model.config));
    batch = raw.batch(all, lengths, options, changed);
    return batch;
  };
  const next = () => {
    const drawn = handle.run(async (raw) => {
      const numbers = await watched(WHERE, signal ? { signal } : {}, (ask) =>
        started(raw).next((...place) => handle.freed || ask(...place)),
      );
      for (const [index, token] of triples(numbers)) if (token >= 0) texts[index]?.drew(token);
      return numbers;
    }, signal);
    return drawn.catch((error: unknown) => {
      throw placed(error, places);
    });
  };
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
        for (const given of text.given(places[index] as number, token, logprob)) {
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
function released(batch: RawBatchGeneration | undefined): undefined {
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
