/** Which names a macro uses. */

import type { Body } from "./tree.js";
import { fault } from "./values.js";

/** Names of bodies that were read: a macro is called often, and its body stays the same. */
const known = new WeakMap<Body, ReadonlySet<unknown>>();

/** Refuses what a macro is given and does not use, as Jinja does. */
export function expectUses(
  name: string,
  body: Body,
  given: { readonly [name: string]: boolean },
): void {
  let names: ReadonlySet<unknown> | undefined;
  for (const [own, is] of Object.entries(given)) {
    if (!is) continue;
    names ??= known.get(body) ?? namesOf(body);
    known.set(body, names);
    if (!names.has(own)) throw fault(`it calls the macro ${name} with more values than it takes`);
  }
}

/** Names that a body reads. */
function namesOf(value: unknown, names = new Set<unknown>()): Set<unknown> {
  if (Array.isArray(value)) for (const one of value) namesOf(one, names);
  else if (
    typeof value === "object" &&
    value !== null &&
    Object.getPrototypeOf(value) === Object.prototype
  ) {
    const { kind, name } = value as { kind?: unknown; name?: unknown };
    if (kind === "name") names.add(name);
    namesOf(Object.values(value), names);
  }
  return names;
}
