/**
 * Settings in the page's address, and a moment of a run: the step that is shown, and the heads that are cut. The
 * visitor's own text, and the prompt, are never in it.
 */
import { byId } from "./dom.ts";
import { CHOICES, isOwn, SLIDERS, type Slider, valuesOf } from "./own-model.ts";
import { type RunSettings, sizeOf } from "./presets.ts";

/** Ids of the controls that are carried. The first ones set others when they change. */
const FIELDS = [
  "text-source",
  "size",
  "own-layers",
  "own-width",
  "own-heads",
  "own-context",
  "own-vocabulary",
  "steps",
  "learning-rate",
  "sequence-length",
  "tokens-per-step",
  "seed",
  "temperature",
  "max-tokens",
];

type Field = HTMLInputElement | HTMLSelectElement;

/** What an address asks for. */
export interface Linked {
  /** Values of the form's fields, by their ids. */
  readonly values: URLSearchParams;
  /** The step of the moment; undefined where the link is of settings alone. */
  readonly step: number | undefined;
  /** Heads that are cut at that moment, by `headAt`. */
  readonly cut: readonly number[];
  /** The number of a lesson. */
  readonly lesson: number | undefined;
}

const counted = (text: string | null): number | undefined =>
  text !== null && /^\d{1,7}$/.test(text) ? Number(text) : undefined;

/** Reads an address's part after the `#`; undefined where it asks for nothing. */
export function readLink(hash: string): Linked | undefined {
  const values = new URLSearchParams(hash.replace(/^#/, ""));
  const lesson = counted(values.get("lesson"));
  if (lesson === undefined && !FIELDS.some((id) => values.has(id))) return undefined;
  const heads = (values.get("cut") ?? "").split(".").map(counted);
  const cut = heads.filter((head) => head !== undefined);
  return { values, step: counted(values.get("step")), cut, lesson };
}

const sliderOf = (id: string): Slider | undefined =>
  SLIDERS.find((slider) => id === `own-${slider}`);

function field(id: string): Field {
  const element = byId(id, HTMLElement);
  return element as Field;
}

/** A slider's value is what it chooses, not its place among the choices. */
function chosenIn(id: string): string {
  const slider = sliderOf(id);
  const { value } = field(id);
  return slider ? String(CHOICES[slider][Number(value)]) : value;
}

const address = (values: Iterable<[string, string]>): string =>
  `${location.href.split("#")[0]}#${new URLSearchParams([...values])}`;

/** The page's address with all settings of the form. */
export const link = (): string => address(FIELDS.map((id) => [id, chosenIn(id)]));

/** What a moment is of. */
export interface Moment {
  readonly of: {
    /** What is learned, by its name in the form. */
    readonly source: string;
    readonly settings: RunSettings;
    /** Whether it began with a model of the visitor's own files. */
    readonly pretrained: boolean;
  };
  readonly step: number;
  readonly cut: Iterable<number>;
}

/** The address of a moment; undefined where it needs what only this browser has: a text, or a model's files. */
export function momentLink({ of, step, cut }: Moment): string | undefined {
  const { source, settings, pretrained } = of;
  const { config, learningRate, sequenceLength, tokensPerStep, seed, steps } = settings;
  const size = sizeOf(settings);
  const own = source === "paste" || source === "file" || pretrained;
  if (own || !(size || isOwn(config))) return undefined;
  const sliders = Object.entries(valuesOf(config)).map(([slider, value]): [string, string] => [
    `own-${slider}`,
    String(value),
  ]);
  const heads = [...cut].sort((a, b) => a - b).join(".");
  return address([
    ["text-source", source],
    ["size", size ?? "own"],
    ...(size ? [] : sliders),
    ["steps", String(steps)],
    ["learning-rate", String(learningRate)],
    ["sequence-length", String(sequenceLength)],
    ["tokens-per-step", String(tokensPerStep)],
    ["seed", String(seed)],
    ["step", String(step)],
    ...(heads === "" ? [] : [["cut", heads] as [string, string]]),
  ]);
}

/** Whether a field takes a value as it is: one of its options, or a number within its range and of its step. */
function fits(field: Field, value: string): boolean {
  // A field that is disabled checks nothing, and those of the form are while the page opens.
  const probe = field.cloneNode(true) as Field;
  probe.disabled = false;
  probe.value = value;
  return value !== "" && probe.value === value && probe.checkValidity();
}

/**
 * Takes over the settings of an address. A control keeps what it has where the value does not fit.
 *
 * @returns names of the settings that do not fit.
 */
export function applyLink(values: URLSearchParams): string[] {
  const unfit: string[] = [];
  for (const id of FIELDS) {
    const value = values.get(id);
    if (value === null) continue;
    const element = field(id);
    const slider = sliderOf(id);
    const taken = slider ? String(CHOICES[slider].indexOf(Number(value))) : value;
    if (fits(element, taken)) {
      element.value = taken;
      element.dispatchEvent(new Event("change"));
    } else unfit.push(id);
  }
  return unfit;
}
