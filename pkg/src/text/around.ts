/**
 * What a tokenizer puts around a text. `@huggingface/tokenizers` takes the name of a special token for its text, where
 * Python takes the ids that the processor gives: so it encodes texts without, and these are put around them.
 */

import { corrupt } from "../file-part.js";
import { show } from "../options.js";
import { partsOf, type TokenizerJson, type TokenizerPart } from "./tokenizer-json.js";

/** The ids before and after a text. */
export interface Around {
  readonly before: readonly number[];
  readonly after: readonly number[];
}

/** What `post_processor` puts around one text. */
export function aroundOf(place: string, { post_processor }: TokenizerJson): Around {
  let [before, after]: number[][] = [[], []] as [number[], number[]];
  for (const part of partsOf(post_processor, "processors")) {
    const one = aroundBy(place, part);
    before = [...one.before, ...(before as number[])];
    after = [...(after as number[]), ...one.after];
  }
  return { before: before as number[], after: after as number[] };
}

function aroundBy(place: string, part: TokenizerPart): Around {
  switch (part?.type) {
    case "ByteLevel": // it changes offsets alone
      return { before: [], after: [] };
    case "BertProcessing":
    case "RobertaProcessing":
      return { before: pairOf(place, part, "cls"), after: pairOf(place, part, "sep") };
    case "TemplateProcessing":
      return byTemplate(place, part);
    default:
      throw wrong(place, "type", part?.type);
  }
}

/** The id of `cls` or `sep`: a text and its id. */
function pairOf(place: string, part: TokenizerPart, name: string): number[] {
  const given: unknown = part[name];
  const id: unknown = Array.isArray(given) ? given[1] : undefined;
  if (!isId(id)) throw wrong(place, name, given);
  return [id];
}

interface Item {
  readonly SpecialToken?: { readonly id?: unknown };
  readonly Sequence?: { readonly id?: unknown };
}

function byTemplate(place: string, part: TokenizerPart): Around {
  const { single, special_tokens } = part;
  if (!Array.isArray(single)) throw wrong(place, "single", single);
  const [before, after]: [number[], number[]] = [[], []];
  let texts = 0;
  for (const item of single as (Item | null)[]) {
    if (item?.Sequence?.id === "A") texts += 1;
    else {
      const ids = idsOf(special_tokens, item?.SpecialToken?.id);
      if (!ids) throw wrong(place, "single", single);
      (texts === 0 ? before : after).push(...ids);
    }
  }
  if (texts !== 1) throw wrong(place, "single", single);
  return { before, after };
}

function idsOf(tokens: unknown, name: unknown): readonly number[] | undefined {
  if (typeof name !== "string") return undefined;
  const own: unknown = Object.hasOwn(Object(tokens), name) ? Object(tokens)[name] : undefined;
  const { ids } = Object(own) as { ids?: unknown };
  return Array.isArray(ids) && ids.every(isId) ? (ids as number[]) : undefined;
}

const isId = (value: unknown): value is number =>
  Number.isInteger(value) && (value as number) >= 0 && (value as number) < 2 ** 32;

const wrong = (place: string, what: string, value: unknown) =>
  corrupt(
    `${place}: ${what} of post_processor is ${show(JSON.stringify(value) ?? value)}, which is not computed here`,
  );
