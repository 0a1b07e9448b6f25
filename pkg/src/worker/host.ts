/** The worker's side: makes the calls, and keeps the objects that the page has. */

import { TinyloomError } from "../error.js";
import { called, show } from "../options.js";
import { setPageAddress } from "../page-address.js";
import { askPage, type Page } from "../page-services.js";
import * as Comlink from "./comlink.js";
import { HeldObjects } from "./held.js";
import { provideGpu } from "./node.js";
import { functionKind, isClass, membersOf } from "./surface.js";
import {
  type Exported,
  type HostApi,
  isLocal,
  makeLocal,
  type Properties,
  packError,
  type Reply,
  replaceDeep,
  SYMBOLS,
  type Target,
  UNUSED,
  WIRE,
  type Wire,
  wholeBuffers,
  wireKind,
} from "./wire.js";

/** What lives as long as a call, or an iterator. */
interface Scope {
  readonly signals: number[];
  /** Those that write to the page's streams. */
  readonly streams: WritableStream[];
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

/** Serves one connection. */
export class Host implements HostApi {
  readonly #exports: { readonly [name: string]: unknown };
  readonly #held = new HeldObjects();
  readonly #signals = new Map<number, AbortController>();
  readonly #iterations = new Map<number, Iteration>();

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
    setPageAddress(base);
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
    const scope: Scope = { signals: [], streams: [], running: new Set() };
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
    const held = this.#held.find(target);
    try {
      (held.object as Record<string, unknown>)[member] = value;
    } catch (error) {
      held.refused ??= error;
      held.sent.delete(member); // the page has put its value there already
    }
    return { updates: this.#held.updates() };
  }

  /** Opens an iterator and makes its first step. */
  iterate(id: number, target: Target, member: string, values: unknown[]): Promise<Reply> {
    const scope: Scope = { signals: [], streams: [], running: new Set() };
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
    const { object } = this.#held.find(target);
    const promise = (object as Record<string, unknown>)[member];
    return this.#reply(() => promise);
  }

  abort(id: number, reason: unknown): void {
    this.#signals.get(id)?.abort(reason);
  }

  /** The page has let go of an object that it was sent `count` times. */
  release(id: number, count: number): void {
    this.#held.release(id, count);
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

  #close({ signals, streams }: Scope): void {
    for (const id of signals) this.#signals.delete(id);
    for (const stream of streams) if (!stream.locked) stream.abort(UNUSED).catch(() => undefined);
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
    const owner =
      typeof target === "number" ? this.#held.find(target).object : this.#exports[target];
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
      const value = this.#held.pack(result);
      buffers = wholeBuffers(value);
      reply = { value };
    } catch (error) {
      reply = { error: packError(error) };
    }
    const changed = this.#held.updates(target);
    if (changed.length > 0) reply = { ...reply, updates: changed };
    return Comlink.transfer(reply, buffers);
  }

  /** Stand-ins replaced by what they stand for. */
  #unpack(values: unknown[], scope: Scope): unknown[] {
    return replaceDeep(values, (value) => {
      if (isStream(value)) scope.streams.push(value);
      switch (wireKind(value)) {
        case "object":
          return this.#held.find((value as Wire & { id: number }).id).object;
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
      const result = remote(this.#held.pack(values));
      const running = result
        .catch((error: unknown) => {
          scope.failed ??= { name, error };
        })
        .finally(() => scope.running.delete(running));
      scope.running.add(running);
      return result;
    };
  }

  #describeClass(name: string, type: { readonly prototype: object }): Exported {
    const statics = membersOf(name, type);
    const constants: Record<string, unknown> = {};
    for (const [member, kind] of Object.entries(statics)) {
      if (kind === "property") constants[member] = (type as unknown as Properties)[member];
    }
    const [shapeId] = this.#held.shape(type.prototype);
    const shape = { name, members: membersOf(name, type.prototype) };
    return { kind: "class", shapeId, shape, statics, constants };
  }
}

const isStream = (value: object): value is WritableStream =>
  typeof WritableStream === "function" && value instanceof WritableStream;
