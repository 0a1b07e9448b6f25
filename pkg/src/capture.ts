/** What a model computes on its way, and what moves its logits; loaded when it is needed. */

import type { With } from "./asked.js";
import type {
  AttributeOptions,
  ByLayer,
  Captured,
  CaptureKinds,
  CaptureOptions,
  LensLayer,
  LensOptions,
} from "./capture-types.js";
import type { WeightFormat } from "./formats.js";
import { adapter } from "./generate-options.js";
import { interventionsOf } from "./interventions.js";
import { INFERENCE, inference } from "./model-options.js";
import type { Scores } from "./model-types.js";
import {
  anything,
  check,
  flag,
  index,
  integer,
  invalid,
  list,
  type Rule,
  type Rules,
} from "./options.js";
import { LONG } from "./progress.js";
import type { RawModel } from "./raw-types.js";
import type { ResolvedConfig } from "./resolved-config.js";
import { scores } from "./score.js";
import { toTokens } from "./tokens.js";
import { watched } from "./watch.js";

/** A call with what it needs of its model. */
export interface Looking {
  readonly config: ResolvedConfig;
  readonly weights: WeightFormat;
  /** Does work on the model, or with an adapter over it. */
  run<T>(options: object, work: (raw: RawModel) => Promise<T>): Promise<T>;
}

const KINDS: { readonly [K in keyof Required<CaptureKinds>]: Rule } = {
  residual: flag,
  attention: flag,
  attentionOutput: flag,
  mlp: flag,
  query: flag,
  key: flag,
  value: flag,
};

const layers: Rule = (value) =>
  Array.isArray(value) && value.length > 0 && value.every((one) => index(one) === undefined)
    ? undefined
    : "an array of at least one layer";

const CAPTURE: Rules<CaptureOptions> = { ...INFERENCE, ...KINDS, layers };
const LENS: Rules<LensOptions> = { ...INFERENCE, layers, top: integer(0, 64), targets: anything };
const ATTRIBUTE: Rules<AttributeOptions> = {
  target: index,
  against: index,
  position: index,
  layers,
  adapter,
  adapters: list,
  ...LONG,
};

const upTo = (count: number) => Array.from({ length: count }, (_, layer) => layer);

/** Refuses layers that are not there. The number after the last layer's stands for the state after the last layer. */
function expectLayers(method: string, layers: readonly number[] | undefined, most: number): void {
  const wrong = layers?.findIndex((layer) => layer > most) ?? -1;
  if (wrong < 0) return;
  throw invalid(`${method}: layers[${wrong}] is ${layers?.[wrong]}; it must be from 0 to ${most}`);
}

/** {@link Model.capture}. */
export async function capture(
  of: Looking,
  tokens: Uint32Array,
  options: CaptureOptions,
): Promise<Captured> {
  const [chosen, json] = inference("capture", options, CAPTURE, of.weights);
  const names = Object.keys(KINDS) as (keyof CaptureKinds)[];
  const kinds = names.filter((name) => chosen[name]);
  if (kinds.length === 0) throw invalid(`capture takes at least one of ${names.join(", ")}`);
  const count = of.config.num_hidden_layers;
  expectLayers("capture", chosen.layers, kinds.includes("residual") ? count : count - 1);
  const { kvCache, weights } = JSON.parse(json);
  return of.run(chosen, async (raw) => {
    const captured = chosen.layers
      ? named(kinds, [...new Set(chosen.layers)], count)
      : (JSON.parse(raw.capturedOf(JSON.stringify(kinds))) as Place[]);
    const own = JSON.stringify({ kvCache, weights, captured });
    const changed = interventionsOf("capture", chosen.interventions, raw, {
      positions: tokens.length,
    });
    const found = await watched("capture", chosen, (ask) => raw.capture(tokens, own, ask, changed));
    const result: { [kind: string]: { [layer: number]: Float32Array } } = {};
    for (const kind of kinds) result[kind] = {};
    for (const [at, [kind, layer]] of captured.entries()) {
      (result[kind] as { [layer: number]: Float32Array })[layer] = found[at] as Float32Array;
    }
    return result;
  });
}

type Kind = keyof CaptureKinds;
type Place = readonly [kind: Kind, layer: number];

/** The kinds in the layers that are named. The state after the last layer is a state only: other kinds have no such layer. */
function named(kinds: readonly Kind[], list: readonly number[], count: number): Place[] {
  const last = kinds.includes("residual");
  const has = (kind: Kind, layer: number) => kind === "residual" || layer < count || !last;
  return kinds.flatMap((kind) =>
    list.filter((layer) => has(kind, layer)).map((layer): Place => [kind, layer]),
  );
}

/** {@link Model.lens}. */
export async function lens(
  of: Looking,
  tokens: Uint32Array,
  options: LensOptions,
): Promise<LensLayer[]> {
  const [chosen, json] = inference("lens", options, LENS, of.weights);
  const { layers, targets, top = Math.min(5, of.config.vocab_size) } = chosen;
  const count = of.config.num_hidden_layers;
  expectLayers("lens", layers, count);
  const wanted = targets === undefined ? targets : toTokens("targets", targets);
  const all: LensLayer[] = [];
  const { kvCache, weights } = JSON.parse(json);
  for (const layer of layers ?? upTo(count + 1)) {
    const own = JSON.stringify({ kvCache, weights, top, layer });
    const given = { ...chosen, top };
    const told = await of.run(chosen, (raw) =>
      scores(raw, [tokens, wanted, undefined, own], given, "lens"),
    );
    all.push({ layer, ...(told as With<Scores, "top">) });
  }
  return all;
}

/** {@link Model.attribute}. */
export async function attribute(
  of: Looking,
  tokens: Uint32Array,
  given: AttributeOptions & { interventions?: readonly unknown[] },
): Promise<ByLayer> {
  const { interventions = [], ...options } = given ?? {};
  const none = Array.isArray(interventions) && interventions.length === 0;
  if (!none) {
    throw invalid(
      "attribute takes no interventions: its gradients are those of the model as it is; to see what a change does, compare " +
        "logits with it and without",
    );
  }
  const chosen = check("attribute", options, ATTRIBUTE, "target");
  const { target, against, position = tokens.length - 1 } = chosen;
  const count = of.config.num_hidden_layers;
  expectLayers("attribute", chosen.layers, count);
  const all = [...new Set(chosen.layers ?? upTo(count + 1))];
  const json = JSON.stringify({ target, against, position, layers: all });
  const found = await of.run(chosen, (raw) =>
    watched("attribute", chosen, (ask) => raw.attribute(tokens, json, ask)),
  );
  return Object.fromEntries(all.map((layer, at) => [layer, found[at] as Float32Array]));
}
