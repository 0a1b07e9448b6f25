/** Reads templates: the statements of Jinja that transformers has. */

import { ExpressionParser } from "./expressions.js";
import type { Token } from "./lex.js";
import type { Body, Expression, Parameter, Statement, Target, Tree } from "./tree.js";

/** The tree of a template. */
export function parse(source: string): Tree {
  return new Parser(source).tree();
}

class Parser extends ExpressionParser {
  #marks = false;
  /** How many `{% for %}` can be left by `break` here. */
  #loops = 0;
  #marked = false;

  tree(): Tree {
    const body = this.#statements([]);
    return { body, marks: this.#marks };
  }

  #statements(ends: readonly string[]): Statement[] {
    const list: Statement[] = [];
    while (this.at < this.tokens.length) {
      const token = this.tokens[this.at++] as Token;
      if (token.kind === "data") list.push({ kind: "text", text: token.text });
      else if (token.text === "{{") {
        list.push({ kind: "print", value: this.tuple() });
        this.expect("end");
      } else {
        if (ends.length > 0 && this.is("name", ...ends)) return list;
        list.push(...this.nested(() => this.#statement()));
        this.expect("end");
      }
    }
    if (this.#marked) throw this.#unpaired();
    if (ends.length > 0) throw this.wrong(`{% ${ends.at(-1)} %} is missing`);
    return list;
  }

  /** A body up to its end tag. */
  #bodyTo(end: string): Body {
    this.expect("end");
    const made = this.#statements([end]);
    this.at += 1;
    return made;
  }

  #statement(): Statement[] {
    const name = this.expect("name");
    const made = this.#reader(name);
    if (made) return [made].flat();
    if (!/^(end|el)/.test(name)) throw this.wrong(`it has {% ${name} %}, which is not known here`);
    if (this.#marked || name === "endgeneration") throw this.#unpaired();
    throw this.wrong(`{% ${name} %} ends nothing`);
  }
  #unpaired(): Error {
    return this.wrong(
      "{% generation %} and {% endgeneration %} of the template do not alternate; put the one before each answer " +
        "and the other after it",
    );
  }

  #ifStatement(): Statement {
    const branches: [Expression, Body][] = [];
    let otherwise: Body = [];
    for (;;) {
      const test = this.tuple(false);
      this.expect("end");
      branches.push([test, this.#statements(["elif", "else", "endif"])]);
      const end = this.expect("name");
      if (end === "elif") continue;
      if (end === "else") otherwise = this.#bodyTo("endif");
      return { kind: "if", branches, otherwise };
    }
  }
  #forStatement(): Statement {
    const to = this.#target(false, "in");
    this.expect("name", "in");
    const of = this.tuple(false, "recursive");
    const where = this.skip("name", "if") ? this.expression() : undefined;
    const recursive = this.skip("name", "recursive");
    this.expect("end");
    this.#loops += 1;
    const inner = this.#statements(["else", "endfor"]);
    this.#loops -= 1;
    const otherwise = this.expect("name") === "else" ? this.#bodyTo("endfor") : [];
    return {
      kind: "for",
      target: to,
      of,
      ...(where && { where }),
      recursive,
      body: inner,
      otherwise,
    };
  }
  #setStatement(): Statement {
    const to = this.#target(true);
    if (this.skip("operator", "=")) return { kind: "set", target: to, value: this.tuple() };
    const filter = this.is("operator", "|") ? this.filters(undefined, false) : undefined;
    return { kind: "capture", target: to, ...(filter && { filter }), body: this.#bodyTo("endset") };
  }
  #withStatement(): Statement {
    const sets: [Target, Expression][] = [];
    while (!this.is("end")) {
      if (sets.length > 0) this.expect("operator", ",");
      const to = this.#target(false);
      this.expect("operator", "=");
      sets.push([to, this.expression()]);
    }
    return { kind: "with", sets, body: this.#bodyTo("endwith") };
  }
  #macroStatement(): Statement {
    const name = this.expect("name");
    const own = this.#parameters();
    return { kind: "macro", name, parameters: own, body: this.#inMacro("endmacro") };
  }
  #callStatement(): Statement {
    const own = this.is("operator", "(") ? this.#parameters() : [];
    const call = this.expression();
    if (call.kind !== "call") throw this.wrong("{% call %} takes a call");
    return { kind: "call", parameters: own, call, body: this.#inMacro("endcall") };
  }
  /** The body of a function: no loop around it can be left from there. */
  #inMacro(end: string): Body {
    const around = this.#loops;
    this.#loops = 0;
    const made = this.#bodyTo(end);
    this.#loops = around;
    return made;
  }
  #generationStatement(): Statement {
    if (this.#marked) throw this.#unpaired();
    this.#marks = true;
    this.#marked = true;
    const body = this.#inMacro("endgeneration");
    this.#marked = false;
    return { kind: "generation", body };
  }
  #jump(kind: "break" | "continue"): Statement {
    if (this.#loops === 0) throw this.wrong(`{% ${kind} %} stands in no loop`);
    return { kind };
  }
  #printStatement(): Statement[] {
    const list: Statement[] = [];
    while (!this.is("end")) {
      if (list.length > 0) this.expect("operator", ",");
      list.push({ kind: "print", value: this.expression() });
    }
    return list;
  }

  #parameters(): Parameter[] {
    const list: Parameter[] = [];
    this.expect("operator", "(");
    while (!this.skip("operator", ")")) {
      if (list.length > 0) this.expect("operator", ",");
      const name = this.expect("name");
      if (this.skip("operator", "=")) list.push([name, this.expression()]);
      else if (list.at(-1)?.[1])
        throw this.wrong(`parameter ${name} has no default, and one before it has`);
      else list.push([name]);
    }
    return list;
  }

  /** What is assigned to. */
  #target(fields: boolean, end?: string): Target {
    const items: Target[] = [];
    let several = false;
    do {
      if (
        items.length > 0 &&
        (this.is("end") || this.is("operator", "=", ")") || (end && this.is("name", end)))
      )
        break;
      if (this.skip("operator", "(")) {
        items.push(this.#target(fields));
        this.expect("operator", ")");
      } else {
        const name = this.expect("name");
        if (/^(true|false|none)$/i.test(name)) throw this.unexpected();
        if (fields && this.skip("operator", "."))
          items.push({ kind: "field", name, field: this.expect("name") });
        else items.push({ kind: "name", name });
      }
      several ||= this.is("operator", ",");
    } while (this.skip("operator", ","));
    return several ? { kind: "tuple", items } : (items[0] as Target);
  }

  /** A statement after its name; undefined where no statement has it. */
  #reader(name: string): Statement | Statement[] | undefined {
    switch (name) {
      case "if":
        return this.#ifStatement();
      case "for":
        return this.#forStatement();
      case "set":
        return this.#setStatement();
      case "with":
        return this.#withStatement();
      case "macro":
        return this.#macroStatement();
      case "call":
        return this.#callStatement();
      case "filter":
        return {
          kind: "filter",
          filter: this.filters(undefined, true),
          body: this.#bodyTo("endfilter"),
        };
      case "generation":
        return this.#generationStatement();
      case "print":
        return this.#printStatement();
      case "break":
      case "continue":
        return this.#jump(name);
      default:
        return undefined;
    }
  }
}
