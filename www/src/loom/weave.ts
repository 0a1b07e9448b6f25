/** What is drawn of a model: a text, what it says, and every thread between. */
import { END } from "../tasks/task.ts";
import { type Guess, guessOf, Pass } from "./pass.ts";
import type { Shape, Weights } from "./weights.ts";

/** A text in a model. Arrays have a number for each letter. */
export interface Weave {
  readonly shape: Pick<Shape, "layers" | "heads">;
  /** Letters that are read, and how many of them were given; the others are the model's own. */
  readonly tokens: readonly number[];
  readonly given: number;
  /** Whether what is given is a problem: then only its answer counts. */
  readonly answers: boolean;
  /** Columns, some of which may be empty. */
  readonly columns: number;
  /** Shares of a head: `shares[layer][head][at][from]`. */
  readonly shares: readonly (readonly (readonly Float32Array[])[])[];
  /** What the model says next, at each letter. */
  readonly guesses: readonly Guess[];
  /** What it would say after each layer: `lens[layer][at]`; 0 is before the first. */
  readonly lens: readonly (readonly Guess[])[];
  /** How much each layer's feed-forward block changes the thread: `changes[layer][at]`. */
  readonly changes: readonly (readonly number[])[];
  /** What tokens are called, where they are words; otherwise they are letters. */
  readonly signs?: ReadonlyMap<number, string>;
  /** The numbers of the layers from 0, where not all are shown. */
  readonly numbers?: readonly number[];
}

/** What is woven. */
export interface Cloth {
  /** What is read. */
  readonly given: Uint8Array;
  /** Letters that the model adds at most. */
  readonly adds: number;
  /** Heads that are switched off. */
  readonly off: ReadonlySet<number>;
  readonly answers: boolean;
}

/** The most letters on the loom. */
export const LETTERS = 32;

/**
 * Reads a text, and lets the model go on with it. It yields after each letter, and the weave as the last.
 *
 * @param cloth - its text is `LETTERS` long at most.
 */
export function* weaving(
  weights: Weights,
  { given, adds, off, answers }: Cloth,
): Generator<Weave | undefined, void, undefined> {
  const { shape } = weights;
  const columns = given.length + adds;
  const pass = new Pass(weights, columns, off);
  const tokens: number[] = [];
  const guesses: Guess[] = [];
  const lens: Guess[][] = Array.from({ length: shape.layers }, () => []);
  for (let at = 0; at < columns; at++) {
    const token = at < given.length ? given[at]! : guesses[at - 1]!.token;
    if (at >= given.length && token === END) break;
    tokens.push(token);
    pass.read(token);
    guesses.push(guessOf(pass.logits()));
    for (let layer = 0; layer < shape.layers; layer++) {
      lens[layer]!.push(guessOf(pass.logits(at, layer)));
    }
    yield undefined;
  }
  const places = [...tokens.keys()];
  const layers = Array.from({ length: shape.layers }, (_, layer) => layer);
  const heads = Array.from({ length: shape.heads }, (_, head) => head);
  yield {
    shape,
    tokens,
    given: given.length,
    answers,
    columns,
    shares: layers.map((layer) =>
      heads.map((head) => places.map((at) => pass.shares(layer, head, at))),
    ),
    guesses,
    lens,
    changes: layers.map((layer) => places.map((at) => pass.change(layer, at))),
  };
}

/** A letter as it is drawn. Bytes that are no letters are dots. */
export function sign(token: number): string {
  if (token === END) return "⏎";
  if (token === 32) return "␣";
  if (token === 62) return "→";
  return token > 32 && token < 127 ? String.fromCharCode(token) : "·";
}

/** A letter in a sentence. */
export function named(token: number): string {
  if (token === END) return "the end";
  if (token === 32) return "a space";
  if (token === 62) return "the arrow";
  return token > 32 && token < 127 ? `“${String.fromCharCode(token)}”` : `byte ${token}`;
}

/** A text's letters as one string. */
export const spelt = (tokens: Iterable<number>): string =>
  [...tokens]
    .filter((token) => token !== END)
    .map((token) => (token === 32 ? " " : sign(token)))
    .join("");
