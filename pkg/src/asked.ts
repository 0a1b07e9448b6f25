/** Types of results whose fields depend on what was asked for. */

/** A value with these fields, which are optional in it, since they were asked for. */
export type With<T, K extends keyof T> = T & { readonly [P in K]-?: NonNullable<T[P]> };

/** Options of which no other is known: a type parameter alone would take a misspelt one. */
export type Only<Given, Known> = Given & {
  readonly [K in Exclude<keyof Given, keyof Known>]: never;
};
