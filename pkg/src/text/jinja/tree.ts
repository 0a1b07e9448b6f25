/** The trees of templates. */

import type { Value } from "./values.js";

export interface Arguments {
  readonly args: readonly Expression[];
  readonly named: readonly (readonly [string, Expression])[];
  readonly more?: Expression;
  readonly moreNamed?: Expression;
}

export type Expression =
  | { readonly kind: "constant"; readonly value: Value }
  | { readonly kind: "name"; readonly name: string }
  | { readonly kind: "list" | "tuple"; readonly items: readonly Expression[] }
  | { readonly kind: "dict"; readonly pairs: readonly (readonly [Expression, Expression])[] }
  | { readonly kind: "not" | "negative" | "positive"; readonly of: Expression }
  | { readonly kind: "and" | "or"; readonly left: Expression; readonly right: Expression }
  | {
      readonly kind: "binary";
      readonly operator: string;
      readonly left: Expression;
      readonly right: Expression;
    }
  | {
      readonly kind: "compare";
      readonly first: Expression;
      readonly rest: readonly (readonly [string, Expression])[];
    }
  | { readonly kind: "concat"; readonly parts: readonly Expression[] }
  | {
      readonly kind: "if";
      readonly test: Expression;
      readonly then: Expression;
      readonly otherwise?: Expression;
    }
  | { readonly kind: "attribute"; readonly of: Expression; readonly name: string }
  | { readonly kind: "item"; readonly of: Expression; readonly key: Expression }
  | {
      readonly kind: "slice";
      readonly of: Expression;
      readonly bounds: readonly (Expression | undefined)[];
    }
  | { readonly kind: "call"; readonly of: Expression; readonly given: Arguments }
  | {
      readonly kind: "filter";
      readonly of?: Expression;
      readonly name: string;
      readonly given: Arguments;
    }
  | {
      readonly kind: "test";
      readonly of: Expression;
      readonly name: string;
      readonly given: Arguments;
    };

export type Target =
  | { readonly kind: "name"; readonly name: string }
  | { readonly kind: "field"; readonly name: string; readonly field: string }
  | { readonly kind: "tuple"; readonly items: readonly Target[] };

export type Parameter = readonly [name: string, byDefault?: Expression];

export type Body = readonly Statement[];

export type Statement =
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "print"; readonly value: Expression }
  | {
      readonly kind: "if";
      readonly branches: readonly (readonly [Expression, Body])[];
      readonly otherwise: Body;
    }
  | {
      readonly kind: "for";
      readonly target: Target;
      readonly of: Expression;
      readonly where?: Expression;
      readonly recursive: boolean;
      readonly body: Body;
      readonly otherwise: Body;
    }
  | { readonly kind: "set"; readonly target: Target; readonly value: Expression }
  | {
      readonly kind: "capture";
      readonly target: Target;
      readonly filter?: Expression;
      readonly body: Body;
    }
  | {
      readonly kind: "with";
      readonly sets: readonly (readonly [Target, Expression])[];
      readonly body: Body;
    }
  | {
      readonly kind: "macro";
      readonly name: string;
      readonly parameters: readonly Parameter[];
      readonly body: Body;
    }
  | {
      readonly kind: "call";
      readonly parameters: readonly Parameter[];
      readonly call: Expression;
      readonly body: Body;
    }
  | { readonly kind: "filter"; readonly filter: Expression; readonly body: Body }
  | { readonly kind: "generation"; readonly body: Body }
  | { readonly kind: "break" | "continue" };

export interface Tree {
  readonly body: Body;
  /** Whether answers are marked. */
  readonly marks: boolean;
}
