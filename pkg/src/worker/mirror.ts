/** The page's classes: made from what the worker says of its own. */

import type { ModelConfig } from "../model-config.js";
import { invalid } from "../options.js";
import { resolvedConfig } from "../resolved-config.js";
import { REMOTE } from "../value-text.js";
import { seededCall } from "./surface.js";
import {
  type Kind,
  type Properties,
  type Shape,
  SYMBOLS,
  type Target,
  unpackError,
  WIRE,
  type Wire,
  wireKind,
} from "./wire.js";

/** An object of the worker, as the page has it. */
export type Mirror = object;
/** A class of such objects. */
export type MirrorClass = { new (): Mirror; readonly prototype: Mirror };

/** What mirrors ask of their connection. */
export interface MirrorCalls {
  /** Calls a method. The promise settles when the properties that it changed are here. */
  call(target: Target, member: string, values: unknown[]): Promise<unknown>;
  /** Sets a property. If the worker refuses the value, the next call on the object tells it. */
  set(target: number, member: string, value: unknown): void;
  /** The value of a property that is a promise. */
  settled(target: number, member: string): Promise<unknown>;
  /** An iterator whose steps are the worker's. */
  iterate(target: Target, member: string, values: unknown[]): AsyncGenerator;
  /** Values of the worker, with mirrors for their stand-ins. */
  unpack(wire: unknown): unknown;
}

interface State {
  readonly connection: MirrorCalls;
  readonly id: number;
  readonly properties: Map<string, () => unknown>;
}

const states = new WeakMap<Mirror, State>();

/** Connection and number of a mirror; undefined for anything else. */
export function mirrorState(value: object): State | undefined {
  return states.get(value);
}

/** A class whose methods call the worker's. */
export function mirrorClass(connection: MirrorCalls, { name, members }: Shape): MirrorClass {
  const made = class {
    constructor() {
      if (new.target === made) {
        throw invalid(`new ${name}() cannot be called from the page; use its static methods`);
      }
    }
  };
  Object.defineProperty(made, "name", { value: name });
  Object.defineProperty(made.prototype, REMOTE, { value: name });
  for (const [member, kind] of Object.entries(members)) {
    const key = SYMBOLS[member] ?? member;
    if (kind === "method" || kind === "iterator") {
      const target = function target(this: Mirror) {
        return stateOf(this, name, member);
      };
      const work = caller(connection, kind, member, target, name);
      Object.defineProperty(made.prototype, key, {
        value: work,
        configurable: true,
        writable: true,
      });
    } else {
      Object.defineProperty(made.prototype, key, accessor(name, member, kind));
    }
  }
  return made;
}

function stateOf(mirror: Mirror, name: string, member: string): State {
  const state = states.get(mirror);
  if (state) return state;
  throw invalid(`${name}.${member} was called on something else than a ${name}`);
}

/**
 * A function that calls the worker: of a method it gives a promise, of an iterator one of those.
 *
 * @param name - of the class of a mirror's method.
 */
export function caller(
  connection: MirrorCalls,
  kind: Kind,
  member: string,
  target: Target | ((this: Mirror) => State),
  name = "",
): (...values: unknown[]) => unknown {
  return function call(this: Mirror, ...values: unknown[]) {
    const state = typeof target === "function" ? target.call(this) : undefined;
    const at = state ? state.id : (target as Target);
    if (kind === "iterator") {
      const { values: all, own } = seededCall(name, member || String(at), values);
      return Object.assign(connection.iterate(at, member, all), own);
    }
    return connection.call(at, member, values);
  };
}

function accessor(name: string, member: string, kind: Kind): PropertyDescriptor {
  return {
    configurable: true,
    enumerable: true,
    get(this: Mirror) {
      return states.get(this)?.properties.get(member)?.();
    },
    ...(kind === "settable" && {
      set(this: Mirror, value: unknown) {
        const state = stateOf(this, name, member);
        state.properties.set(member, () => value);
        state.connection.set(state.id, member, value);
      },
    }),
  };
}

/** A mirror of the worker's object. Its properties follow. */
export function makeMirror(connection: MirrorCalls, type: MirrorClass, id: number): Mirror {
  const mirror = Object.create(type.prototype) as Mirror;
  states.set(mirror, { connection, id, properties: new Map() });
  return mirror;
}

/** Takes over properties that the worker has sent. */
export function setProperties(mirror: Mirror, changes: Properties): void {
  const { connection, id, properties } = states.get(mirror) as State;
  const type = (mirror as { [REMOTE]?: string })[REMOTE] as string;
  for (const [name, wire] of Object.entries(changes)) {
    properties.set(name, reader(connection, id, `${type}.${name}`, name, wire));
    if (name in mirror) continue;
    Object.defineProperty(mirror, name, accessor(type, name, "property"));
  }
}

function reader(
  connection: MirrorCalls,
  id: number,
  where: string,
  name: string,
  wire: unknown,
): () => unknown {
  const kind = typeof wire === "object" && wire !== null ? wireKind(wire) : undefined;
  if (kind === "thrown") {
    const { error } = wire as Wire & { [WIRE]: "thrown" };
    return () => {
      throw unpackError(error);
    };
  }
  if (kind === "stays") {
    const { type } = wire as Wire & { [WIRE]: "stays" };
    return () => {
      throw invalid(
        `${where} is a ${type}, which stays in the worker; use it in a worker of your own, and give ` +
          "that to connect({ worker })",
      );
    };
  }
  const value = kind === "promise" ? connection.settled(id, name) : connection.unpack(wire);
  if (where === "Model.config" && value) resolvedConfig(value as ModelConfig); // what is not enumerable was not sent
  return () => value;
}
