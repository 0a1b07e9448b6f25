/** A real model on the loom: what its layers look at over a chat, by the package's own capture and lens. */
import type { Model } from "tinyloom/worker";
import type { Codec } from "../data.ts";
import type { Guess } from "../loom/pass.ts";
import type { Weave } from "../loom/weave.ts";
import { shapeOf } from "../shape.ts";

/** Tokens on the loom, and the most of them that are the answer. */
const [COLUMNS, ANSWER] = [18, 8];
/** Layers on the loom. */
export const LAYERS = 6;
/** The most tokens of a prompt: shares of all pairs of them are read. */
const PROMPT = 256;
/** The most letters of a tile. */
const LETTERS = 7;

/** A text in a model, as it is looked at. */
export interface Read {
  readonly tokens: readonly number[];
  /** How many of them are the prompt. */
  readonly given: number;
}

/** Which layers of a model are shown: neighbours from one on, or some from the first to the last. */
export function layersFrom(first: number | "all", count: number): number[] {
  const shown = Math.min(LAYERS, count);
  if (first !== "all") {
    const begin = Math.min(first, count - shown);
    return Array.from({ length: shown }, (_, at) => begin + at);
  }
  const step = shown < 2 ? 0 : (count - 1) / (shown - 1);
  return Array.from({ length: shown }, (_, at) => Math.round(at * step));
}

/** The likeliest answer's tokens after a prompt. */
export async function answered(
  model: Model,
  prompt: readonly number[],
  context: number,
  options: object,
): Promise<Read> {
  const asked = prompt.slice(-Math.min(PROMPT, context - 1));
  const tokens = [...asked];
  const maxTokens = Math.min(ANSWER, context - asked.length);
  for await (const { token } of model.generate(asked, { ...options, maxTokens, temperature: 0 })) {
    tokens.push(token);
  }
  return { tokens, given: asked.length };
}

/** A token as a tile has it. */
function signOf(name: string): string {
  if (name === "space") return "␣";
  if (name === "line break") return "⏎";
  // Of what has no text, such as the end of a turn, its number tells more than its beginning would.
  if (/^number \d+$/.test(name)) return name.replace("number ", "#");
  const bare = name.trim().replaceAll("\n", "⏎");
  const letters = [...(bare === "" ? "␣" : bare)];
  return letters.length > LETTERS ? `${letters.slice(0, LETTERS - 1).join("")}…` : letters.join("");
}

/** The last tokens of a text in some layers of a model. */
export async function weaveOf(
  model: Model,
  codec: Codec,
  { tokens: all, given }: Read,
  layers: readonly number[],
  options: object,
): Promise<Weave> {
  const count = all.length;
  const begin = Math.max(0, count - COLUMNS);
  const asked = { ...options, layers: [...layers] };
  const captured = await model.capture(all, {
    ...asked,
    attention: true,
    residual: true,
    mlp: true,
  });
  const last = shapeOf(model.config).layers ?? layers.length;
  const lens = await model.lens(all, {
    ...options,
    top: 1,
    layers: [...new Set([...layers, last])],
  });
  const places = Array.from({ length: count - begin }, (_, at) => begin + at);
  const guessed = (layer: number): Guess[] => {
    const { ids, probabilities } = lens.find((one) => one.layer === layer)!.top!;
    return places.map((at) => ({ token: ids[at]!, share: probabilities[at]! }));
  };
  const attention = layers.map((layer) => captured.attention?.[layer]);
  const square = count * count;
  const heads = Math.max(1, ...attention.map((shares) => (shares?.length ?? 0) / square));
  const rowOf = (shares: Float32Array | undefined, head: number, at: number) => {
    const start = (head * count + at) * count;
    return shares?.subarray(start + begin, start + at + 1) ?? new Float32Array(at + 1 - begin);
  };
  const guesses = guessed(last);
  const lenses = layers.map(guessed);
  const seen = new Set([
    ...all.slice(begin),
    ...[guesses, ...lenses].flat().map((one) => one.token),
  ]);
  const names = await Promise.all(
    [...seen].map(async (token) => [token, signOf(await codec.name(token))] as const),
  );
  return {
    shape: { layers: layers.length, heads },
    tokens: all.slice(begin),
    given: given - begin,
    answers: given > begin,
    columns: places.length,
    shares: attention.map((shares) =>
      Array.from({ length: heads }, (_, head) => places.map((at) => rowOf(shares, head, at))),
    ),
    guesses,
    lens: lenses,
    changes: layers.map((layer) =>
      places.map((at) => ratio(captured.mlp?.[layer], captured.residual?.[layer], at, count)),
    ),
    signs: new Map(names),
    numbers: layers,
  };
}

/** How long one row is, measured by another: how much the feed-forward block changes the thread. */
function ratio(
  change: Float32Array | undefined,
  state: Float32Array | undefined,
  at: number,
  count: number,
): number {
  if (!change || !state) return 0;
  const length = (all: Float32Array) => {
    const width = all.length / count;
    let sum = 0;
    for (let i = at * width; i < (at + 1) * width; i++) sum += all[i]! ** 2;
    return Math.sqrt(sum);
  };
  return length(change) / Math.max(1e-9, length(state));
}
