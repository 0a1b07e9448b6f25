/** Interventions of a call, checked and as the module takes them; loaded when they are needed. */

import type { Intervention } from "./interventions-types.js";
import { inspect, invalid, object, show } from "./options.js";
import type { RawInterventions, RawModel } from "./raw-types.js";
import type { ResolvedConfig } from "./resolved-config.js";

const PLACES = ["residual", "attention", "mlp", "head"];
const CHANGES = ["scale", "add", "project", "set"] as const;
const KNOWN = ["at", "layer", "head", ...CHANGES, "strength", "positions"];

/** The largest number of a position: lists and ranges end below it. */
const END = 0xffff_ffff;

type Given = { readonly [name: string]: unknown };

/** The positions that a call has. */
export interface Room {
  readonly positions: number;
  /** What has them, for errors; default the text. */
  readonly of?: "the longest document" | "the model";
}

/** Of a text that grows: it may come to every position of the model. */
export const roomOf = ({ max_position_embeddings: positions }: ResolvedConfig): Room => ({
  positions,
  of: "the model",
});

/**
 * What a model takes. One is good for one call.
 *
 * @param room - positions of the text where its length is known; of the model where the text grows.
 */
export function interventionsOf(
  where: string,
  given: readonly Intervention[] | undefined,
  raw: RawModel,
  room: Room,
): RawInterventions | undefined {
  if (!given?.length) return undefined;
  const [json, vectors] = inspect(where, () => written(where, given, room));
  return raw.interventions(json, vectors);
}

function written(where: string, given: readonly unknown[], room: Room): [string, Float32Array] {
  const vectors: number[][] = [];
  let begin = 0;
  const all = Array.from(given, (one, index) => {
    const refuse = (what: string) => invalid(`${where}: interventions[${index}]${what}`);
    if (object(one) !== undefined) throw refuse(` is ${show(one)}; give a plain object`);
    const [own, numbers] = changeOf(one as Given, refuse, room);
    vectors.push(numbers);
    begin += numbers.length;
    return { ...own, vector: [begin - numbers.length, numbers.length] };
  });
  return [JSON.stringify(all), Float32Array.from(vectors.flat())];
}

type Refuse = (what: string) => Error;

function changeOf(one: Given, refuse: Refuse, room: Room): [object, number[]] {
  const unknown = Object.keys(one).find((name) => !KNOWN.includes(name));
  if (unknown) throw refuse(` has no field "${unknown}"; it takes ${KNOWN.join(", ")}`);
  const { at, layer, head, strength, positions } = one;
  if (!PLACES.includes(at as string)) {
    const allowed = PLACES.map((name) => `"${name}"`).join(", ");
    throw refuse(`.at is ${show(at)}; it must be one of ${allowed}`);
  }
  const whole = (name: string, value: unknown) => {
    if (Number.isInteger(value) && (value as number) >= 0 && (value as number) < END) return value;
    throw refuse(`.${name} is ${show(value)}; it must be a whole number of at least 0`);
  };
  const [change, ...others] = CHANGES.filter((name) => one[name] !== undefined);
  if (!change || others.length) {
    throw refuse(
      ` has ${change ? [change, ...others].join(" and ") : "no change"}; give one of ${CHANGES.join(", ")}`,
    );
  }
  const scales = change === "scale";
  const factor = scales ? one[change] : strength;
  if (strength !== undefined && change !== "add" && change !== "project") {
    throw refuse(`.strength is of add and project; ${change} takes none`);
  }
  if (head !== undefined && at !== "head") throw refuse(`.head is of a head; at is "${at}"`);
  if (factor !== undefined && !Number.isFinite(factor)) {
    throw refuse(`.${scales ? change : "strength"} is ${show(factor)}; it must be a finite number`);
  }
  const own = {
    at,
    layer: whole("layer", layer),
    ...(at === "head" && { head: whole("head", head) }),
    change,
    by: factor ?? 1,
    positions: runsOf(positions, room, whole, refuse),
  };
  return [own, scales ? [] : numbersOf(change, one[change], refuse)];
}

function numbersOf(name: string, value: unknown, refuse: Refuse): number[] {
  if (!Array.isArray(value) && !(value instanceof Float32Array)) {
    throw refuse(`.${name} is ${show(value)}; give a Float32Array or an array of numbers`);
  }
  const numbers = Array.from(value as Float32Array);
  const at = numbers.findIndex((number) => !Number.isFinite(number) || Math.abs(number) > 3.4e38);
  if (at >= 0) {
    throw refuse(`.${name}[${at}] is ${show(numbers[at])}; its numbers must be finite`);
  }
  return numbers;
}

/** First positions, and how many from there on; none for all. */
function runsOf(
  positions: unknown,
  room: Room,
  whole: (name: string, value: unknown) => unknown,
  refuse: Refuse,
): [number, number][] {
  if (positions === undefined) return [];
  const end = room.positions;
  /** Refuses what is above the most that is allowed. */
  const within = (name: string, value: number, most: number) => {
    if (value <= most) return value;
    const have = `${room.of ?? "the text"} has ${end} positions`;
    throw refuse(`.${name} is ${value}; ${have}, so it must be at most ${most}`);
  };
  if (Array.isArray(positions) || positions instanceof Uint32Array) {
    if (positions.length === 0) throw refuse(".positions is empty; leave it out for all");
    const runs: [number, number][] = [];
    for (const [index, one] of Array.from(positions as unknown[]).entries()) {
      const name = `positions[${index}]`;
      const position = within(name, whole(name, one) as number, end - 1);
      const last = runs.at(-1);
      if (last && position === last[0] + last[1]) last[1]++;
      else runs.push([position, 1]);
    }
    return runs;
  }
  if (object(positions) !== undefined) {
    throw refuse(`.positions is ${show(positions)}; give an array of positions or { from, to }`);
  }
  const { from = 0, to, ...others } = positions as Given;
  const [unknown] = Object.keys(others);
  if (unknown) throw refuse(`.positions has no field "${unknown}"; it takes from and to`);
  const first = within("positions.from", whole("positions.from", from) as number, end - 1);
  if (to === undefined) return [[first, END - first]];
  const last = within("positions.to", whole("positions.to", to) as number, end);
  if (last <= first) throw refuse(`.positions.to is ${last}; it must be above from, ${first}`);
  return [[first, last - first]];
}
