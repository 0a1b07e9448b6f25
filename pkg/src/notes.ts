/** What a model's files say besides the config that is computed and the weights. */

/** Element types that a checkpoint is written in. */
export type Dtype = "f32" | "f16" | "bf16";

/** What a save gives back, and what ends a text. */
export interface ModelNotes {
  /** Each of these tokens ends a text. */
  readonly ends: readonly number[];
  /** The text of `generation_config.json`, which a save gives back; undefined where there is none. */
  readonly generation: string | undefined;
  /** What the weights were stored in, where that was one type. */
  readonly dtype: Dtype;
  /** Of an adapter what names the model under it. */
  readonly base?: string | undefined;
}

/** Those of an adapter: its model's count. */
export const NO_NOTES: ModelNotes = { ends: [], generation: undefined, dtype: "f32" };

/** The file beside a checkpoint that says how its texts are generated. */
export const GENERATION_FILE = "generation_config.json";

/**
 * The notes of a model. The files' own texts decide what ends a text, and not a config with its defaults: an end that
 * nobody wrote ends nothing.
 *
 * @param config - the text of `config.json`, or of what `Model.create` was given.
 * @param generation - the text of `generation_config.json`.
 */
export function notesOf(
  config: string,
  generation?: string,
  dtype: Dtype = NO_NOTES.dtype,
): ModelNotes {
  const { eos_token_id, text_config } = fieldsOf(config);
  const own = idsIn(eos_token_id);
  const nested = idsIn((text_config as Fields | null | undefined)?.eos_token_id);
  const first = generation === undefined ? [] : idsIn(fieldsOf(generation).eos_token_id);
  const ends = [...new Set([...first, ...own, ...nested])];
  // A saved config is flat. What only the nested one named is kept in the file that transformers reads first.
  const onlyNested = generation === undefined && nested.some((id) => !own.includes(id));
  return { ends, generation: onlyNested ? generationOf(ends) : generation, dtype };
}

/** A `generation_config.json` that names these ends. */
export function generationOf(ends: readonly number[]): string {
  const eos_token_id = ends.length === 1 ? ends[0] : ends;
  return `${JSON.stringify(ends.length > 0 ? { eos_token_id } : {}, undefined, 2)}\n`;
}

interface Fields {
  readonly eos_token_id?: unknown;
  readonly text_config?: unknown;
}

/** The fields of a JSON object. Another judges whether a config is one. */
function fieldsOf(text: string): Fields {
  return (JSON.parse(text) ?? {}) as Fields;
}

/** One id or a list of them. */
function idsIn(value: unknown): number[] {
  const listed: readonly unknown[] = Array.isArray(value) ? value : [value];
  return listed.filter((id): id is number => Number.isInteger(id) && (id as number) >= 0);
}

/** What ends a text by default: each source may name other tokens. Ids that the model has not are never drawn. */
export function defaultEnds(
  ids: readonly number[],
  endToken: unknown,
  vocabulary: number,
): number[] {
  return [...new Set([...ids, ...idsIn(endToken)])].filter((id) => id < vocabulary);
}
