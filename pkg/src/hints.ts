/** What a refusal says besides: which loads with the parts of `lazy.ts`, and is left out until then. */

/** Words for wrong calls. */
export interface Hints {
  /** What an unknown option may have meant of those that the call takes; empty, or words in brackets. */
  readonly option: (name: string, known: readonly string[]) => string;
  /** What to give for an argument of token ids; undefined where its usual words serve. */
  readonly ids: (argument: string, given: unknown) => string | undefined;
}

export const hints: Partial<Hints> = {};
