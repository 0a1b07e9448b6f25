/** The worker's objects that the page has, and what it was told of them. */

import { TinyloomError } from "../error.js";
import { invalid } from "../options.js";
import { membersOf } from "./surface.js";
import {
  isGpuObject,
  isPlain,
  isPlatform,
  localName,
  type Properties,
  packError,
  replaceDeep,
  type Shape,
  type Target,
  WIRE,
  type Wire,
} from "./wire.js";

/** An object that the page has. */
export interface Held {
  readonly object: object;
  readonly shape: Shape;
  /** How often it was sent. */
  count: number;
  /** What a property refused: told by the next call, since setting one gives no answer. */
  refused?: unknown;
  /** Its properties as last sent. */
  readonly sent: Map<string, Sent>;
}

interface Sent {
  readonly value: unknown;
  /** As JSON, to compare plain data that each reading makes again. */
  readonly text: string | undefined;
}

/** What was sent for a getter that throws, and for a GPU object, which is not read again. */
const THROWN = Symbol("thrown");
const STAYS = Symbol("stays");

/** Keeps the objects that the page has, and tells it which of their properties changed. */
export class HeldObjects {
  readonly #held = new Map<number, Held>();
  readonly #ids = new WeakMap<object, number>();
  readonly #shapes = new Map<unknown, number>();
  /** Whose properties are being read: an object may refer to itself. */
  readonly #sending = new Set<Held>();
  #lastId = 0;

  /** How many there are. */
  get size(): number {
    return this.#held.size;
  }

  /** The object of a number, if the page has it. */
  get(id: number): Held | undefined {
    return this.#held.get(id);
  }

  /** The object of a number that the page has sent. */
  find(id: number): Held {
    const held = this.#held.get(id);
    if (held) return held;
    throw new TinyloomError("internal", `the worker has no object ${id}`);
  }

  /** The page has let go of an object that it was sent `count` times. */
  release(id: number, count: number): void {
    const held = this.#held.get(id);
    if (!held) return;
    held.count -= count;
    if (held.count > 0) return;
    this.#held.delete(id);
    this.#ids.delete(held.object);
  }

  /** Nothing is kept any more. */
  clear(): void {
    this.#held.clear();
  }

  /** A value with stand-ins for what cannot be cloned. */
  pack(value: unknown): unknown {
    return replaceDeep(value, (one) => {
      if (one instanceof Error) return { [WIRE]: "error", error: packError(one) };
      const name = localName(one);
      if (name) return { [WIRE]: "local", name };
      if (isGpuObject(one)) return { [WIRE]: "stays", type: one.constructor.name };
      if (typeof one === "function") {
        throw invalid("a function cannot go from the worker to the page");
      }
      return isObject(one) ? this.#reference(one) : undefined;
    });
  }

  /** The number of a shape, and whether it is new. There is one for each class, or set of functions. */
  shape(key: unknown): [shapeId: number, isNew: boolean] {
    const known = this.#shapes.get(key);
    const shapeId = known ?? this.#shapes.size;
    this.#shapes.set(key, shapeId);
    return [shapeId, known === undefined];
  }

  #reference(object: object): Wire {
    const plain = isPlain(object);
    const key = plain ? Object.keys(object).sort().join() : Object.getPrototypeOf(object);
    const [shapeId, isNew] = this.shape(key);
    const known = this.#ids.get(object);
    if (known !== undefined) return this.#again(known, shapeId);
    const name = plain ? "object" : (object.constructor?.name ?? "object");
    const shape = { name, members: membersOf(name, object) };
    const held: Held = { object, shape, count: 1, sent: new Map() };
    const id = ++this.#lastId;
    this.#ids.set(object, id);
    this.#held.set(id, held);
    const properties = this.#changes(held);
    return { [WIRE]: "object", id, shapeId, ...(isNew && { shape }), properties };
  }

  /** What was sent before: with all its properties, since the page may have let go of it meanwhile. */
  #again(id: number, shapeId: number): Wire {
    const held = this.find(id);
    held.count += 1;
    if (this.#sending.has(held)) return { [WIRE]: "object", id, shapeId };
    held.sent.clear();
    return { [WIRE]: "object", id, shapeId, properties: this.#changes(held) };
  }

  /** The properties that changed since they were sent. */
  #changes(held: Held): Properties {
    this.#sending.add(held);
    try {
      return this.#changesOf(held);
    } finally {
      this.#sending.delete(held);
    }
  }

  #changesOf({ object, shape, sent }: Held): Properties {
    const changes: Record<string, unknown> = {};
    for (const [name, kind] of Object.entries(shape.members)) {
      if (kind !== "property" && kind !== "settable") continue;
      const last = sent.get(name);
      if (last?.value === STAYS) continue;
      const now = this.#read(object as Properties, name);
      if (last && Object.is(last.value, now.value) && now.value !== THROWN) continue;
      if (last && now.text !== undefined && last.text === now.text) continue;
      changes[name] = now.wire();
      sent.set(name, now);
    }
    return changes;
  }

  #read(object: Properties, name: string): Sent & { wire(): unknown } {
    try {
      const value = object[name];
      if (value instanceof Promise)
        return { value, text: undefined, wire: () => ({ [WIRE]: "promise" }) };
      if (typeof value === "object" && value !== null && isGpuObject(value)) {
        return { value: STAYS, text: undefined, wire: () => this.pack(value) };
      }
      return { value, text: jsonOf(value), wire: () => this.pack(value) };
    } catch (thrown) {
      const error = packError(thrown);
      const text = `${error.code} ${error.message}`;
      return { value: THROWN, text, wire: () => ({ [WIRE]: "thrown", error }) };
    }
  }

  /** Changed properties: of every object, or of the one that made a step and those that it refers to. */
  updates(target?: Target): [number, Properties][] {
    const ids = typeof target === "number" ? this.#around(target) : [...this.#held.keys()];
    const updates: [number, Properties][] = [];
    for (const id of ids) {
      const held = this.#held.get(id);
      const changes = held ? this.#changes(held) : {};
      if (Object.keys(changes).length > 0) updates.push([id, changes]);
    }
    return updates;
  }

  #around(target: number): number[] {
    const sent = this.#held.get(target)?.sent.values() ?? [];
    const others = [...sent].map(({ value }) =>
      typeof value === "object" && value !== null ? this.#ids.get(value) : undefined,
    );
    return [target, ...others.filter((id) => id !== undefined)];
  }
}

/** Whether the page gets the object as a proxy: an instance of a class, or plain with functions. */
function isObject(value: object): boolean {
  if (Array.isArray(value) || isPlatform(value)) return false;
  return !isPlain(value) || Object.values(value).some((one) => typeof one === "function");
}

/** Plain data as JSON; undefined for anything else. */
function jsonOf(value: unknown): string | undefined {
  if (typeof value !== "object" || value === null) return undefined;
  if (!Array.isArray(value) && (!isPlain(value) || isObject(value))) return undefined;
  try {
    return JSON.stringify(value);
  } catch {
    return undefined;
  }
}
