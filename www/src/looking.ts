/** What the model of a training computes on the way: attention over a text, and which tokens it treats alike. */
import type { Model } from "tinyloom/worker";
import type { Codec } from "./data.ts";
import { shapeOf } from "./shape.ts";

/** Letters of the text whose tokens may be neighbours. */
const LOOKED = 20_000;
/** The most tokens that are looked at. */
const CANDIDATES = 2048;

/** Signs for white space. */
const VISIBLE: { [name: string]: string } = { space: "␣", "line break": "⏎" };

/** A text as tokens with what each is called. */
export interface Read {
  readonly ids: Uint32Array;
  readonly texts: readonly string[];
}

/** What a token is called in a picture. */
async function signOf(codec: Codec, id: number): Promise<string> {
  const name = await codec.name(id);
  return VISIBLE[name] ?? name;
}

/** The last tokens of a text, at most `length`. */
export async function read(codec: Codec, text: string, length: number): Promise<Read> {
  const ids = (await codec.encode(text)).slice(-length);
  return { ids, texts: await Promise.all([...ids].map((id) => signOf(codec, id))) };
}

/** The likeliest tokens of a row of logits, with their probabilities. */
export async function likeliestNext(
  codec: Codec,
  logits: Float32Array,
  count: number,
): Promise<(readonly [name: string, probability: number])[]> {
  const best = [...logits.keys()].sort((a, b) => logits[b]! - logits[a]!).slice(0, count);
  const most = logits[best[0] ?? 0] ?? 0;
  const sum = logits.reduce((all, logit) => all + Math.exp(logit - most), 0);
  const shareOf = (id: number) => Math.exp(logits[id]! - most) / sum;
  return Promise.all(best.map(async (id) => [await signOf(codec, id), shareOf(id)] as const));
}

/** A token and how alike its embedding is: the cosine of the angle between both. */
export interface Neighbour {
  readonly name: string;
  readonly cosine: number;
}

/** Embeddings of the tokens of a text, each of length 1. */
export class Embeddings {
  readonly #codec: Codec;
  readonly #ids: readonly number[];
  readonly #rows: readonly Float32Array[];

  private constructor(codec: Codec, ids: readonly number[], rows: readonly Float32Array[]) {
    this.#codec = codec;
    this.#ids = ids;
    this.#rows = rows;
  }

  /** Of the model as it is. */
  static async of(model: Model, codec: Codec, text: Blob): Promise<Embeddings> {
    const seen = new Set(await codec.encode(await text.slice(0, LOOKED).text()));
    const ids = [...seen].slice(0, CANDIDATES);
    const rows = await rowsOf(model, ids);
    return new Embeddings(codec, ids, rows.map(unit));
  }

  /** Those that are most like a token's; none where the text does not have it. */
  async nearest(id: number, count: number): Promise<Neighbour[]> {
    const own = this.#rows[this.#ids.indexOf(id)];
    if (!own) return [];
    const alike = this.#rows.map((row, at) => ({ id: this.#ids[at]!, cosine: dot(own, row) }));
    const best = alike.filter((one) => one.id !== id).sort((a, b) => b.cosine - a.cosine);
    return Promise.all(
      best.slice(0, count).map(async ({ id: other, cosine }) => {
        return { name: await this.#codec.name(other), cosine };
      }),
    );
  }
}

/** The embedding of each token. */
async function rowsOf(model: Model, ids: readonly number[]): Promise<Float32Array[]> {
  const { width = 1, positions: most = 128 } = shapeOf(model.config);
  const ofPlaces = /^gpt(2|_neo)$/.test(model.config.model_type ?? "");
  const rows: Float32Array[] = [];
  for (let at = 0; at < ids.length; at += most) {
    const part = Uint32Array.from(ids.slice(at, at + most));
    let states = await model.hiddenStates(part, { layer: 0 });
    if (ofPlaces) {
      const same = part.map(() => ids[0]!);
      const places = await model.hiddenStates(same, { layer: 0 });
      states = states.map((value, index) => value - places[index]!);
    }
    for (let row = 0; row < part.length; row++) {
      rows.push(states.subarray(row * width, (row + 1) * width));
    }
  }
  return ofPlaces ? centred(rows) : rows;
}

/**
 * Rows without their mean. GPT-2 and GPT-Neo add a vector to each token for its place: what is left without it are the distances
 * to one of the tokens, and without their mean it does not matter to which.
 */
function centred(rows: readonly Float32Array[]): Float32Array[] {
  const mean = new Float32Array(rows[0]?.length ?? 0);
  for (const row of rows) for (const [at, value] of row.entries()) mean[at]! += value / rows.length;
  return rows.map((row) => row.map((value, at) => value - mean[at]!));
}

function dot(a: Float32Array, b: Float32Array): number {
  return a.reduce((sum, value, at) => sum + value * b[at]!, 0);
}

function unit(row: Float32Array): Float32Array {
  const length = Math.sqrt(dot(row, row)) || 1;
  return row.map((value) => value / length);
}
