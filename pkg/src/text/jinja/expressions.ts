/** Reads expressions. The grammar is that of Jinja 3.1. */

import { type Token, tokenize } from "./lex.js";
import type { Arguments, Expression } from "./tree.js";
import { fault, float, integer, type Value } from "./values.js";

const NONE: Arguments = { args: [], named: [] };
const COMPARISONS = ["==", "!=", "<", ">", "<=", ">="];
const CONSTANTS: ReadonlyMap<string, Value> = new Map([
  ["true", true],
  ["True", true],
  ["false", false],
  ["False", false],
  ["none", null],
  ["None", null],
]);
/** Levels of a template at most: each takes room on the stack. */
const DEEPEST = 100;

export class ExpressionParser {
  protected readonly tokens: readonly Token[];
  protected at = 0;
  #depth = 0;

  constructor(source: string) {
    this.tokens = tokenize(source);
  }

  protected wrong(what: string): Error {
    const token = this.tokens[this.at] ?? this.tokens.at(-1);
    return fault(`line ${token?.line ?? 1}: ${what}`);
  }
  protected unexpected(): Error {
    const token = this.tokens[this.at];
    return this.wrong(
      token ? `${JSON.stringify(token.text)} is not expected` : "the template ends too early",
    );
  }
  protected is(kind: Token["kind"], ...texts: string[]): boolean {
    const token = this.tokens[this.at];
    return token?.kind === kind && (texts.length === 0 || texts.includes(token.text));
  }
  protected skip(kind: Token["kind"], text: string): boolean {
    if (!this.is(kind, text)) return false;
    this.at += 1;
    return true;
  }
  protected expect(kind: Token["kind"], text?: string): string {
    if (!this.is(kind, ...(text === undefined ? [] : [text]))) throw this.unexpected();
    return (this.tokens[this.at++] as Token).text;
  }
  protected nested<T>(read: () => T): T {
    this.#depth += 1;
    if (this.#depth > DEEPEST) throw this.wrong(`it has more than ${DEEPEST} levels`);
    const made = read();
    this.#depth -= 1;
    return made;
  }

  /** Expressions with commas between them, as a tuple; a single one as itself. */
  protected tuple(conditional = true, end?: string, parentheses = false): Expression {
    const items: Expression[] = [];
    let several = false;
    const ends = () =>
      this.is("end") || this.is("operator", ")") || (end !== undefined && this.is("name", end));
    for (;;) {
      if (items.length > 0) this.expect("operator", ",");
      if (ends()) break;
      items.push(conditional ? this.expression() : this.or());
      if (!this.is("operator", ",")) break;
      several = true;
    }
    if (several) return { kind: "tuple", items };
    const [only] = items;
    if (only) return only;
    if (!parentheses) throw this.unexpected();
    return { kind: "tuple", items: [] };
  }

  protected expression(): Expression {
    return this.nested(() => this.conditional());
  }
  protected conditional(): Expression {
    let then = this.or();
    while (this.skip("name", "if")) {
      const test = this.or();
      const otherwise = this.skip("name", "else")
        ? this.nested(() => this.conditional())
        : undefined;
      then = { kind: "if", test, then, ...(otherwise && { otherwise }) };
    }
    return then;
  }
  protected or(): Expression {
    let left = this.and();
    while (this.skip("name", "or")) left = { kind: "or", left, right: this.and() };
    return left;
  }
  protected and(): Expression {
    let left = this.not();
    while (this.skip("name", "and")) left = { kind: "and", left, right: this.not() };
    return left;
  }
  protected not(): Expression {
    return this.skip("name", "not")
      ? { kind: "not", of: this.nested(() => this.not()) }
      : this.comparison();
  }
  protected comparison(): Expression {
    const first = this.sum();
    const rest: [string, Expression][] = [];
    for (;;) {
      if (this.is("operator", ...COMPARISONS)) rest.push([this.expect("operator"), this.sum()]);
      else if (this.skip("name", "in")) rest.push(["in", this.sum()]);
      else if (
        this.is("name", "not") &&
        this.tokens[this.at + 1]?.kind === "name" &&
        this.tokens[this.at + 1]?.text === "in"
      ) {
        this.at += 2;
        rest.push(["not in", this.sum()]);
      } else return rest.length > 0 ? { kind: "compare", first, rest } : first;
    }
  }
  protected sum(): Expression {
    let left = this.concat();
    while (this.is("operator", "+", "-")) {
      left = { kind: "binary", operator: this.expect("operator"), left, right: this.concat() };
    }
    return left;
  }
  protected concat(): Expression {
    const parts = [this.product()];
    while (this.skip("operator", "~")) parts.push(this.product());
    return parts.length > 1 ? { kind: "concat", parts } : (parts[0] as Expression);
  }
  protected product(): Expression {
    let left = this.power();
    while (this.is("operator", "*", "/", "//", "%")) {
      left = { kind: "binary", operator: this.expect("operator"), left, right: this.power() };
    }
    return left;
  }
  protected power(): Expression {
    let left = this.unary(true);
    while (this.skip("operator", "**"))
      left = { kind: "binary", operator: "**", left, right: this.unary(true) };
    return left;
  }
  protected unary(filtered: boolean): Expression {
    const sign = this.is("operator", "-", "+") ? this.expect("operator") : undefined;
    const made: Expression = sign
      ? { kind: sign === "-" ? "negative" : "positive", of: this.nested(() => this.unary(false)) }
      : this.primary();
    const whole = this.postfix(made);
    return filtered ? this.filters(whole) : whole;
  }
  protected primary(): Expression {
    const token = this.tokens[this.at];
    if (token?.kind === "name") {
      this.at += 1;
      const constant = CONSTANTS.get(token.text);
      return constant === undefined
        ? { kind: "name", name: token.text }
        : { kind: "constant", value: constant };
    }
    if (token?.kind === "string") {
      let value = "";
      while (this.is("string")) value += this.expect("string");
      return { kind: "constant", value };
    }
    if (token?.kind === "integer") {
      this.at += 1;
      return { kind: "constant", value: integer(Number(token.text.replaceAll("_", ""))) };
    }
    if (token?.kind === "float") {
      this.at += 1;
      return { kind: "constant", value: float(Number(token.text.replaceAll("_", ""))) };
    }
    if (this.skip("operator", "(")) {
      const made = this.nested(() => this.tuple(true, undefined, true));
      this.expect("operator", ")");
      return made;
    }
    if (this.skip("operator", "["))
      return { kind: "list", items: this.listed("]", () => this.expression()) };
    if (this.skip("operator", "{")) {
      return {
        kind: "dict",
        pairs: this.listed("}", () => {
          const key = this.expression();
          this.expect("operator", ":");
          return [key, this.expression()] as const;
        }),
      };
    }
    throw this.unexpected();
  }
  /** What stands between commas up to a bracket; a comma may stand before it. */
  protected listed<T>(end: string, read: () => T): T[] {
    const items: T[] = [];
    while (!this.skip("operator", end)) {
      if (items.length > 0) {
        this.expect("operator", ",");
        if (this.skip("operator", end)) break;
      }
      items.push(read());
    }
    return items;
  }
  protected postfix(first: Expression): Expression {
    let of = first;
    for (;;) {
      if (this.skip("operator", ".")) {
        if (this.is("integer"))
          of = {
            kind: "item",
            of,
            key: { kind: "constant", value: Number(this.expect("integer")) },
          };
        else of = { kind: "attribute", of, name: this.expect("name") };
      } else if (this.skip("operator", "[")) of = this.subscript(of);
      else if (this.is("operator", "(")) of = { kind: "call", of, given: this.callArguments() };
      else return of;
    }
  }
  protected subscript(of: Expression): Expression {
    const bounds: (Expression | undefined)[] = [];
    let colons = 0;
    while (!this.skip("operator", "]")) {
      if (this.skip("operator", ":")) colons += 1;
      else if (bounds[colons] || colons > 2) throw this.unexpected();
      else bounds[colons] = this.expression();
    }
    if (colons > 0) return { kind: "slice", of, bounds };
    if (!bounds[0]) throw this.unexpected();
    return { kind: "item", of, key: bounds[0] };
  }
  /** Filters and tests after an expression. */
  protected filters(first: Expression | undefined, inline = false): Expression {
    let of = first;
    for (;;) {
      if ((inline && !of) || this.skip("operator", "|")) {
        const name = this.dotted();
        const given = this.is("operator", "(") ? this.callArguments() : NONE;
        of = { kind: "filter", ...(of && { of }), name, given };
      } else if (of && this.skip("name", "is")) of = this.test(of);
      else if (of && this.is("operator", "("))
        of = { kind: "call", of, given: this.callArguments() };
      else return of as Expression;
    }
  }
  protected dotted(): string {
    let name = this.expect("name");
    while (this.skip("operator", ".")) name += `.${this.expect("name")}`;
    return name;
  }
  protected test(of: Expression): Expression {
    const negated = this.skip("name", "not");
    const name = this.dotted();
    let given = NONE;
    if (this.is("operator", "(")) given = this.callArguments();
    else if (
      (this.is("name") && !this.is("name", "else", "or", "and")) ||
      this.is("string") ||
      this.is("integer") ||
      this.is("float") ||
      this.is("operator", "[", "{")
    ) {
      if (this.is("name", "is")) throw this.unexpected();
      given = { args: [this.postfix(this.primary())], named: [] };
    }
    const made: Expression = { kind: "test", of, name, given };
    return negated ? { kind: "not", of: made } : made;
  }
  protected callArguments(): Arguments {
    const args: Expression[] = [];
    const named: [string, Expression][] = [];
    const more: { more?: Expression; moreNamed?: Expression } = {};
    this.expect("operator", "(");
    this.listed(")", () => {
      if (this.skip("operator", "**")) more.moreNamed = this.expression();
      else if (this.skip("operator", "*")) more.more = this.expression();
      else if (
        this.is("name") &&
        this.tokens[this.at + 1]?.kind === "operator" &&
        this.tokens[this.at + 1]?.text === "="
      ) {
        const name = this.expect("name");
        this.at += 1;
        named.push([name, this.expression()]);
      } else if (named.length > 0 || more.more || more.moreNamed) throw this.unexpected();
      else args.push(this.expression());
    });
    return { args, named, ...more };
  }
}
