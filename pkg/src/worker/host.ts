/** The worker's side: makes the calls, and keeps the objects that the page has. */

import { askPage, type Page } from "../asked.js";
import { setBase } from "../base.js";
import { TinyloomError } from "../error.js";
import { called, invalid, show } from "../options.js";
import * as Comlink from "./comlink.js";
import { provideGpu } from "./node.js";
import { functionKind, isClass, membersOf } from "./surface.js";
import {
  type Exported,
  type HostApi,
  isGpuObject,
  isLocal,
  isPlain,
  isPlatform,
  localName,
  makeLocal,
  type Properties,
  packError,
  type Reply,
  replaceDeep,
  type Shape,
  SYMBOLS,
  type Target,
  WIRE,
  type Wire,
  wholeBuffers,
  wireKind,
} from "./wire.js";

/** An object that the page has. */
interface Held {
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

/** What lives as long as a call, or an iterator. */
interface Scope {
  readonly signals: number[];
  /** Callbacks of the page that have not returned. */
  readonly running: Set<Promise<unknown>>;
  /** What the first of them to fail threw. */
  failed?: { readonly name: string; readonly error: unknown };
}

interface Iteration {
  readonly iterator: AsyncIterator<unknown>;
  readonly scope: Scope;
  readonly target: Target;
}

type Callable = (...values: unknown[]) => unknown;

/** What was sent for a getter that throws, and for a GPU object, which is not read again. */
const THROWN = Symbol("thrown");
const STAYS = Symbol("stays");

/** Serves one connection. */
export class Host implements HostApi {
  readonly #exports: { readonly [name: string]: unknown };
  readonly #held = new Map<number, Held>();
  readonly #ids = new WeakMap<object, number>();
  readonly #shapes = new Map<unknown, number>();
  readonly #signals = new Map<number, AbortController>();
  readonly #iterations = new Map<number, Iteration>();
  /** Whose properties are being read: an object may refer to itself. */
  readonly #sending = new Set<Held>();
  #lastId = 0;

  /** @param exports - what the page gets, by name: classes, functions, plain data. */
  constructor(exports: { readonly [name: string]: unknown }) {
    this.#exports = exports;
  }

  /** How many objects the page has; for the project's tests. */
  get _heldCount(): number {
    return this.#held.size;
  }

  /** How many signals of the page are listened to; for the project's tests. */
  get _signalCount(): number {
    return this.#signals.size;
  }

  /**
   * @param base - the page's address.
   * @param page - does what this worker cannot.
   */
  async hello(base: string | undefined, page: Page): Promise<{ [name: string]: Exported }> {
    setBase(base);
    askPage(page);
    await provideGpu();
    const described: { [name: string]: Exported } = {};
    for (const [name, value] of Object.entries(this.#exports)) {
      if (isLocal(value)) continue;
      if (isClass(value)) described[name] = this.#describeClass(name, value);
      else if (typeof value !== "function") described[name] = { kind: "value", value };
      else described[name] = { kind: functionKind("", name, value) as "method" | "iterator" };
    }
    return described;
  }

  call(target: Target, member: string, values: unknown[]): Promise<Reply> {
    const scope: Scope = { signals: [], running: new Set() };
    return this.#reply(async () => {
      try {
        const work = this.#method(target, member); // and the call itself: in the order of the messages
        return await this.#settle(scope, await work(...this.#unpack(values, scope)));
      } finally {
        this.#close(scope);
      }
    });
  }

  set(target: number, member: string, [value]: unknown[]): Reply {
    const held = this.#find(target);
    try {
      (held.object as Record<string, unknown>)[member] = value;
    } catch (error) {
      held.refused ??= error;
      held.sent.delete(member); // the page has put its value there already
    }
    return { updates: this.#updates() };
  }

  /** Opens an iterator and makes its first step. */
  iterate(id: number, target: Target, member: string, values: unknown[]): Promise<Reply> {
    const scope: Scope = { signals: [], running: new Set() };
    try {
      const made = this.#method(target, member)(...this.#unpack(values, scope));
      const iterator = (made as AsyncIterable<unknown>)[Symbol.asyncIterator]();
      this.#iterations.set(id, { iterator, scope, target });
    } catch (error) {
      this.#close(scope);
      return Promise.resolve({ error: packError(error), done: true });
    }
    return this.next(id);
  }

  /** A step of an iterator. One that has ended or failed is forgotten. */
  async next(id: number): Promise<Reply> {
    const iteration = this.#iterations.get(id);
    if (!iteration) return { done: true };
    const { iterator, scope, target } = iteration;
    let done = false;
    const reply = await this.#reply(async () => {
      this.#expectAccepted(target);
      const step = await iterator.next();
      done = step.done === true;
      return this.#settle(scope, step.value);
    }, target);
    if (done) this.#forget(id);
    return done ? Object.assign(reply, { done }) : reply;
  }

  /** Ends an iterator as leaving its loop does. */
  end(id: number): Promise<Reply> {
    const iteration = this.#iterations.get(id);
    this.#forget(id);
    return this.#reply(async () => void (await iteration?.iterator.return?.()));
  }

  settled(target: number, member: string): Promise<Reply> {
    const { object } = this.#find(target);
    const promise = (object as Record<string, unknown>)[member];
    return this.#reply(() => promise);
  }

  abort(id: number, reason: unknown): void {
    this.#signals.get(id)?.abort(reason);
  }

  /** The page has let go of an object that it was sent so many times. */
  release(id: number, count: number): void {
    const held = this.#held.get(id);
    if (!held) return;
    held.count -= count;
    if (held.count > 0) return;
    this.#held.delete(id);
    this.#ids.delete(held.object);
  }

  /** The connection is closed: what runs ends, and nothing is kept. */
  [Comlink.finalizer](): void {
    askPage(undefined);
    for (const controller of this.#signals.values()) controller.abort();
    for (const { iterator } of this.#iterations.values()) {
      iterator.return?.().catch(() => undefined);
    }
    this.#iterations.clear();
    this.#held.clear();
  }

  #forget(id: number): void {
    const iteration = this.#iterations.get(id);
    if (iteration) this.#close(iteration.scope);
    this.#iterations.delete(id);
  }

  #close({ signals }: Scope): void {
    for (const id of signals) this.#signals.delete(id);
  }

  #find(id: number): Held {
    const held = this.#held.get(id);
    if (held) return held;
    throw new TinyloomError("internal", `the worker has no object ${id}`);
  }

  /** Tells what a property of the object has refused. */
  #expectAccepted(target: Target): void {
    const held = typeof target === "number" ? this.#held.get(target) : undefined;
    if (held?.refused === undefined) return;
    const { refused } = held;
    delete held.refused;
    throw refused;
  }

  #method(target: Target, member: string): Callable {
    this.#expectAccepted(target);
    const owner = typeof target === "number" ? this.#find(target).object : this.#exports[target];
    if (member === "") return owner as Callable;
    const key = SYMBOLS[member] ?? member;
    const work = (owner as Record<string | symbol, unknown>)[key];
    if (typeof work === "function") return work.bind(owner);
    throw new TinyloomError("internal", `the worker's ${show(owner)} has no ${member}()`);
  }

  /** A result, once the callbacks that the call has made have returned; what they threw ends it. */
  async #settle(scope: Scope, result: unknown): Promise<unknown> {
    while (scope.running.size > 0) await Promise.allSettled([...scope.running]);
    if (!scope.failed) return result;
    const { name, error } = scope.failed;
    delete scope.failed;
    (result as { free?: () => void } | undefined)?.free?.();
    return called(name, () => {
      throw error;
    });
  }

  async #reply(work: () => unknown, target?: Target): Promise<Reply> {
    let reply: Reply;
    let buffers: ArrayBuffer[] = [];
    try {
      const result = await work();
      const value = this.#pack(result);
      buffers = wholeBuffers(value);
      reply = { value };
    } catch (error) {
      reply = { error: packError(error) };
    }
    const changed = this.#updates(target);
    if (changed.length > 0) reply = { ...reply, updates: changed };
    return Comlink.transfer(reply, buffers);
  }

  /** Stand-ins replaced by what they stand for. */
  #unpack(values: unknown[], scope: Scope): unknown[] {
    return replaceDeep(values, (value) => {
      switch (wireKind(value)) {
        case "object":
          return this.#find((value as Wire & { id: number }).id).object;
        case "signal":
          return this.#signal(value as Wire & { [WIRE]: "signal" }, scope);
        case "function":
          return this.#callback(value as Wire & { [WIRE]: "function" }, scope);
        case "url":
          return new URL((value as Wire & { [WIRE]: "url" }).href);
        case "response":
          return new Response((value as Wire & { [WIRE]: "response" }).body ?? null);
        case "local":
          return makeLocal((value as Wire & { [WIRE]: "local" }).name);
        default:
          return undefined;
      }
    }) as unknown[];
  }

  #signal({ id, aborted, reason }: Wire & { [WIRE]: "signal" }, scope: Scope): AbortSignal {
    const controller = new AbortController();
    if (aborted) controller.abort(reason);
    this.#signals.set(id, controller);
    scope.signals.push(id);
    return controller.signal;
  }

  /**
   * A function of the page. It gives a promise; what it throws there is thrown by its next call here, or
   * ends the operation that it was given to.
   */
  #callback({ port, name }: Wire & { [WIRE]: "function" }, scope: Scope): Callable {
    const handler = Comlink.transferHandlers.get("proxy") as Comlink.TransferHandler<
      unknown,
      unknown
    >;
    const remote = handler.deserialize(port) as (values: unknown) => Promise<unknown>;
    return (...values) => {
      if (scope.failed) {
        const { error } = scope.failed;
        delete scope.failed;
        throw error;
      }
      const result = remote(this.#pack(values));
      const running = result
        .catch((error: unknown) => {
          scope.failed ??= { name, error };
        })
        .finally(() => scope.running.delete(running));
      scope.running.add(running);
      return result;
    };
  }

  /** A value with stand-ins for what cannot be cloned. */
  #pack(value: unknown): unknown {
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

  #describeClass(name: string, type: { readonly prototype: object }): Exported {
    const statics = membersOf(name, type);
    const constants: Record<string, unknown> = {};
    for (const [member, kind] of Object.entries(statics)) {
      if (kind === "property") constants[member] = (type as unknown as Properties)[member];
    }
    const [shapeId] = this.#shape(type.prototype);
    const shape = { name, members: membersOf(name, type.prototype) };
    return { kind: "class", shapeId, shape, statics, constants };
  }

  /** The number of a shape, and whether it is new. There is one for each class, or set of functions. */
  #shape(key: unknown): [shapeId: number, isNew: boolean] {
    const known = this.#shapes.get(key);
    const shapeId = known ?? this.#shapes.size;
    this.#shapes.set(key, shapeId);
    return [shapeId, known === undefined];
  }

  #reference(object: object): Wire {
    const plain = isPlain(object);
    const key = plain ? Object.keys(object).sort().join() : Object.getPrototypeOf(object);
    const [shapeId, isNew] = this.#shape(key);
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
    const held = this.#find(id);
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
        return { value: STAYS, text: undefined, wire: () => this.#pack(value) };
      }
      return { value, text: jsonOf(value), wire: () => this.#pack(value) };
    } catch (thrown) {
      const error = packError(thrown);
      const text = `${error.code} ${error.message}`;
      return { value: THROWN, text, wire: () => ({ [WIRE]: "thrown", error }) };
    }
  }

  /** Changed properties: of every object, or of the one that made a step and those that it refers to. */
  #updates(target?: Target): [number, Properties][] {
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
