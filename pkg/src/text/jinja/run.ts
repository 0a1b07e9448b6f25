/**
 * Renders templates as transformers has Jinja render them. It replaces a library, since what a template prints decides
 * about tokens: those for JavaScript print `true` for `True`, ignore arguments of `strip`, and say nothing. What is not
 * known here is refused by its name. A template reaches no object of JavaScript, and its loops are bounded.
 */

import { bound } from "./arguments.js";
import { attribute, binary, item, related, signed, slice } from "./attributes.js";
import { filterOf } from "./filters.js";
import { globals } from "./globals.js";
import { charge, rendering } from "./limits.js";
import { Loop } from "./loop.js";
import { parse } from "./parse.js";
import { toStr } from "./print.js";
import { type Apply, selecting } from "./selecting.js";
import { testOf } from "./tests.js";
import type { Arguments, Body, Expression, Parameter, Statement, Target } from "./tree.js";
import { expectUses } from "./uses.js";
import {
  Callable,
  Dict,
  defined,
  fault,
  isStr,
  iterate,
  joined,
  marked,
  type Named,
  Namespace,
  type Str,
  Tuple,
  textOf,
  truth,
  typeName,
  Undefined,
  type Value,
} from "./values.js";

/** Macros within macros at most. */
const DEEPEST = 120;

/** Names and their values; what is not here is around it. */
class Scope {
  readonly names = new Map<string, Value>();
  constructor(readonly around?: Scope) {}

  get(name: string): Value | undefined {
    return this.names.has(name) ? this.names.get(name) : this.around?.get(name);
  }
}

/** What a loop is left by. */
type Jump = "break" | "continue" | undefined;

export interface Template {
  /** Whether it marks answers. */
  readonly marks: boolean;
  /**
   * @param date - gives what `strftime_now` writes.
   * @param printed - gets the values other than texts that the template prints.
   */
  render(values: ReadonlyMap<string, Value>, date: () => Date, printed?: Set<object>): Str;
}

export function template(source: string): Template {
  const { body, marks } = parse(source);
  return {
    marks,
    render(values, date, printed = new Set()) {
      const scope = new Scope(new Scope());
      for (const [name, value] of [...globals(date), ...values])
        scope.around?.names.set(name, value);
      return rendering(printed, () => new Machine().render(body, scope));
    },
  };
}

class Machine {
  #depth = 0;

  render(body: Body, scope: Scope): Str {
    const out: Str[] = [];
    this.#run(body, scope, out);
    return joined(out);
  }

  #run(body: Body, scope: Scope, out: Str[]): Jump {
    for (const statement of body) {
      const jump = this.#statement(statement, scope, out);
      if (jump) return jump;
    }
    return undefined;
  }

  /** The text of a body, in names of its own. */
  #captured(body: Body, around: Scope): Str {
    return this.render(body, new Scope(around));
  }

  #statement(one: Statement, scope: Scope, out: Str[]): Jump {
    charge(1);
    switch (one.kind) {
      case "text":
        out.push(one.text);
        return undefined;
      case "print":
        out.push(toStr(this.#value(one.value, scope)));
        return undefined;
      case "if": {
        const found = one.branches.find(([test]) => truth(this.#value(test, scope)));
        return this.#run(found ? found[1] : one.otherwise, scope, out);
      }
      case "for":
        this.#loop(one, this.#value(one.of, scope), scope, out, 0);
        return undefined;
      case "break":
      case "continue":
        return one.kind;
      case "with": {
        const inner = new Scope(scope);
        for (const [to, value] of one.sets) this.#assign(to, this.#value(value, scope), inner);
        return this.#run(one.body, inner, out);
      }
      default:
        this.#definition(one, scope, out);
        return undefined;
    }
  }

  /** Statements that define something, or that print what a body makes. */
  #definition(one: Statement, scope: Scope, out: Str[]): void {
    switch (one.kind) {
      case "set":
        this.#assign(one.target, this.#value(one.value, scope), scope);
        return;
      case "capture": {
        const text = this.#captured(one.body, scope);
        this.#assign(
          one.target,
          one.filter ? this.#filtered(one.filter, scope, text) : text,
          scope,
        );
        return;
      }
      case "filter":
        out.push(toStr(this.#filtered(one.filter, scope, this.#captured(one.body, scope))));
        return;
      case "generation":
        out.push(marked(this.#captured(one.body, scope)));
        return;
      case "macro":
        scope.names.set(one.name, this.#macro(one.name, one.parameters, one.body, scope));
        return;
      case "call": {
        const { call } = one;
        if (call.kind !== "call") return;
        const caller = this.#macro("caller", one.parameters, one.body, scope);
        out.push(toStr(this.#call(call.of, call.given, scope, caller)));
        return;
      }
    }
  }

  #assign(to: Target, value: Value, scope: Scope): void {
    if (to.kind === "name") scope.names.set(to.name, value);
    else if (to.kind === "field") {
      const of = scope.get(to.name);
      if (!(of instanceof Namespace))
        throw fault(`it sets ${to.name}.${to.field}, and ${to.name} is no namespace`);
      of.fields.set(to.field, value);
    } else {
      const values = iterate(value);
      if (values.length !== to.items.length) {
        throw fault(`it takes ${values.length} values apart into ${to.items.length}`);
      }
      for (const [at, inner] of to.items.entries()) this.#assign(inner, values[at] as Value, scope);
    }
  }

  #loop(
    one: Statement & { kind: "for" },
    of: Value,
    scope: Scope,
    out: Str[],
    depth: number,
  ): void {
    const { target, where } = one;
    let items = iterate(of);
    if (where) {
      items = items.filter((value) => {
        charge(1);
        const inner = new Scope(scope);
        this.#assign(target, value, inner);
        return truth(this.#value(where, inner));
      });
    }
    const again = one.recursive
      ? (more: Value) => {
          const inner: Str[] = [];
          this.#nested(() => this.#loop(one, more, scope, inner, depth + 1));
          return joined(inner);
        }
      : undefined;
    const loop = new Loop(items, depth, again);
    for (const value of items) {
      charge(1);
      const inner = new Scope(scope);
      inner.names.set("loop", loop.value);
      this.#assign(target, value, inner);
      if (this.#run(one.body, inner, out) === "break") break;
      loop.next();
    }
    if (items.length === 0) this.#run(one.otherwise, new Scope(scope), out);
  }

  #nested<T>(run: () => T): T {
    this.#depth += 1;
    if (this.#depth > DEEPEST) throw fault(`its macros call each other more than ${DEEPEST} deep`);
    const made = run();
    this.#depth -= 1;
    return made;
  }

  #macro(name: string, parameters: readonly Parameter[], body: Body, around: Scope): Callable {
    return new Callable(name, (args, named) =>
      this.#nested(() => {
        const scope = new Scope(around);
        const own = parameters.map(([parameter]) => parameter);
        const more = args.slice(own.length);
        const others = new Dict();
        for (const [key, value] of named) {
          const at = own.indexOf(key);
          if (key === "caller" && at < 0) scope.names.set(key, value);
          else if (at < 0) others.set(key, value);
          else if (at < args.length) throw fault(`it gives ${name} two values for ${key}`);
        }
        expectUses(name, body, {
          varargs: more.length > 0,
          kwargs: others.size > 0,
          caller: named.has("caller") && !own.includes("caller"),
        });
        scope.names.set("varargs", new Tuple(more));
        scope.names.set("kwargs", others);
        if (!scope.names.has("caller"))
          scope.names.set("caller", new Undefined("caller is undefined"));
        for (const [at, [parameter, byDefault]] of parameters.entries()) {
          const given = at < args.length ? args[at] : named.get(parameter);
          const value =
            given === undefined && byDefault
              ? this.#value(byDefault, scope)
              : defined(given, `${parameter} is not given`);
          scope.names.set(parameter, value);
        }
        return this.render(body, scope);
      }),
    );
  }

  #value(one: Expression, scope: Scope): Value {
    charge(1);
    switch (one.kind) {
      case "constant":
        return one.value;
      case "name":
        return defined(scope.get(one.name), `${one.name} is undefined`);
      case "attribute":
        return attribute(this.#value(one.of, scope), one.name);
      case "item":
        return item(this.#value(one.of, scope), this.#value(one.key, scope));
      case "slice": {
        const of = this.#value(one.of, scope);
        return slice(
          of,
          Array.from(one.bounds, (bound) => bound && this.#value(bound, scope)),
        );
      }
      case "call":
        return this.#call(one.of, one.given, scope);
      case "filter":
        return this.#filtered(one, scope);
      case "test": {
        const [args, named] = this.#arguments(one.given, scope);
        return this.#apply("test", one.name, this.#value(one.of, scope), args, named);
      }
      default:
        return this.#composed(one, scope);
    }
  }

  /** Values that are made of others by operators. */
  #composed(one: Expression, scope: Scope): Value {
    const value = (part: Expression) => this.#value(part, scope);
    switch (one.kind) {
      case "list":
        return one.items.map(value);
      case "tuple":
        return new Tuple(one.items.map(value));
      case "dict": {
        const made = new Dict();
        for (const [key, part] of one.pairs) made.set(value(key), value(part));
        return made;
      }
      case "not":
        return !truth(value(one.of));
      case "negative":
      case "positive":
        return signed(one.kind, value(one.of));
      case "and":
      case "or": {
        const left = value(one.left);
        return truth(left) === (one.kind === "or") ? left : value(one.right);
      }
      case "binary":
        return binary(one.operator, value(one.left), value(one.right));
      case "compare": {
        let left = value(one.first);
        for (const [operator, part] of one.rest) {
          const right = value(part);
          if (!related(operator, left, right)) return false;
          left = right;
        }
        return true;
      }
      case "concat":
        return joined(one.parts.map((part) => toStr(value(part))));
      case "if":
        if (truth(value(one.test))) return value(one.then);
        return one.otherwise
          ? value(one.otherwise)
          : new Undefined("an expression with if has no else");
      default:
        throw fault(`it has ${one.kind}`);
    }
  }

  #arguments(
    { args, named, more, moreNamed }: Arguments,
    scope: Scope,
  ): [Value[], Map<string, Value>] {
    const values = args.map((one) => this.#value(one, scope));
    if (more) for (const one of iterate(this.#value(more, scope))) values.push(one);
    const keys = new Map(named.map(([key, one]) => [key, this.#value(one, scope)] as const));
    const others = moreNamed ? this.#value(moreNamed, scope) : new Dict();
    if (!(others instanceof Dict)) throw fault(`it gives ** ${typeName(others)}`);
    for (const [key, value] of others.entries()) {
      if (!isStr(key)) throw fault("it gives ** a key that is no text");
      keys.set(textOf(key), value);
    }
    return [values, keys];
  }

  #call(of: Expression, given: Arguments, scope: Scope, caller?: Callable): Value {
    const called = this.#value(of, scope);
    const [args, named] = this.#arguments(given, scope);
    if (caller) named.set("caller", caller);
    if (called instanceof Callable) return called.call(args, named);
    throw fault(`it calls ${typeName(called)}`);
  }

  /** A filter's value; what is filtered is given, or stands in the expression. */
  #filtered(one: Expression, scope: Scope, text?: Value): Value {
    if (one.kind !== "filter") return this.#value(one, scope);
    const of = one.of ? this.#filtered(one.of, scope, text) : (text as Value);
    const [args, named] = this.#arguments(one.given, scope);
    return this.#apply("filter", one.name, of, args, named);
  }

  #apply(
    kind: "filter" | "test",
    name: string,
    value: Value,
    args: readonly Value[],
    named: Named,
  ): Value {
    charge(1);
    const own = kind === "filter" ? filterOf(name) : testOf(name);
    if (own) return own[1](value, ...(bound(`${kind} ${name}`, own[0], args, named) as Value[]));
    const apply: Apply = (...one) => this.#apply(...one);
    const made = kind === "filter" ? selecting(name, value, args, named, apply) : undefined;
    if (made !== undefined) return made;
    throw fault(`it has the ${kind} ${name}, which is not known here`);
  }
}
