/** The page's side: sends the calls, and keeps the mirrors of the worker's objects. */

import { type TinyloomError, toError } from "../error.js";
import { invalid } from "../options.js";
import { packedModule } from "../packed-module.js";
import { pageAddress } from "../page-address.js";
import { persist } from "../page-services.js";
import * as Comlink from "./comlink.js";
import {
  caller,
  type Mirror,
  type MirrorCalls,
  type MirrorClass,
  makeMirror,
  mirrorClass,
  setProperties,
} from "./mirror.js";
import { PackedCall } from "./pack.js";
import { resolve } from "./resolve.js";
import {
  type Exported,
  type HostApi,
  makeLocal,
  type Reply,
  replaceDeep,
  type Shape,
  type Target,
  unpackError,
  WIRE,
  type Wire,
  wireKind,
} from "./wire.js";

/** How often the worker has sent an object that has a mirror here. */
interface Count {
  readonly id: number;
  times: number;
}

/** An iterator's number, once the worker has it. */
interface Opened {
  id?: number;
}

type Send = (packed: unknown[]) => Promise<Reply>;

/** Methods that let go of an object. */
const FREEING = ["free", "destroy", "@@dispose"];

/** One connection to a worker. */
export class Connection implements MirrorCalls {
  readonly #host: Comlink.Remote<HostApi>;
  readonly #classes = new Map<number, MirrorClass>();
  readonly #mirrors = new Map<
    number,
    { readonly mirror: WeakRef<Mirror>; readonly count: Count }
  >();
  /** Calls that have not ended. */
  readonly #running = new Set<(error: TinyloomError) => void>();
  #ended: TinyloomError | undefined;
  #lastIterator = 0;

  // What nobody here can reach any more need not be kept there.
  readonly #dropped = new FinalizationRegistry<Count>((count) => {
    if (this.#mirrors.get(count.id)?.count === count) this.#mirrors.delete(count.id);
    if (!this.#ended) void this.#host.release(count.id, count.times);
  });
  readonly #left = new FinalizationRegistry<Opened>(({ id }) => {
    if (id !== undefined && !this.#ended) this.#leave(id).catch(() => undefined);
  });

  constructor(port: MessagePort) {
    this.#host = Comlink.wrap<HostApi>(port);
  }

  /** What the worker exports, as the page has it. */
  async open(): Promise<Record<string, unknown>> {
    const exported = await this.#guarded(() =>
      this.#host.hello(pageAddress(), Comlink.proxy({ packed: packedModule, persist, resolve })),
    );
    const result: Record<string, unknown> = {};
    for (const [name, one] of Object.entries(exported)) result[name] = this.#export(name, one);
    return result;
  }

  /** Ends the connection: what runs fails with this error, and what is called later. */
  end(error: TinyloomError): void {
    if (this.#ended) return;
    this.#ended = error;
    for (const reject of this.#running) reject(error);
    this.#running.clear();
    this.#host[Comlink.releaseProxy]();
  }

  /** Calls a method. The promise settles when the properties that it changed are here. */
  async call(target: Target, member: string, values: unknown[]): Promise<unknown> {
    const where = nameOf(target, member);
    try {
      return await this.#send(where, values, (packed) => this.#host.call(target, member, packed));
    } catch (error) {
      // With a connection that was closed went what it had: what was to be freed is.
      const closed = error === this.#ended && this.#ended?.code === "freed";
      if (closed && typeof target === "number" && FREEING.includes(member)) return;
      throw error;
    }
  }

  /** Sets a property. If the worker refuses the value, the next call on the object tells it. */
  set(target: number, member: string, value: unknown): void {
    const set = this.#send(member, [value], (packed) => this.#host.set(target, member, packed));
    set.catch(() => undefined); // of a connection that has ended, which every call tells
  }

  /** The value of a property that is a promise. */
  settled(target: number, member: string): Promise<unknown> {
    const value = this.#send(member, [], () => this.#host.settled(target, member));
    value.catch(() => undefined); // whoever awaits it hears of it
    return value;
  }

  /** An iterator whose steps are the worker's. One that is dropped before its end ends there too. */
  iterate(target: Target, member: string, values: unknown[]): AsyncGenerator {
    const opened: Opened = {};
    const iterator = this.#steps(opened, target, member, values);
    this.#left.register(iterator, opened);
    return iterator;
  }

  async *#steps(
    opened: Opened,
    target: Target,
    member: string,
    values: unknown[],
  ): AsyncGenerator<unknown, unknown, undefined> {
    const id = ++this.#lastIterator;
    const call = this.#pack(nameOf(target, member), values);
    try {
      const start = (packed: unknown[]) => this.#host.iterate(id, target, member, packed);
      let reply = await this.#post(call, start);
      for (;;) {
        if (reply.done) delete opened.id;
        else opened.id = id;
        const value = this.#accept(reply);
        if (reply.done) return value;
        yield value;
        reply = await this.#guarded(() => this.#host.next(id));
      }
    } finally {
      call.ended();
      if (opened.id !== undefined) {
        delete opened.id;
        await this.#leave(id);
      }
    }
  }

  async #leave(id: number): Promise<void> {
    if (!this.#ended) this.#accept(await this.#guarded(() => this.#host.end(id)));
  }

  /** Values of the worker, with mirrors for their stand-ins. */
  unpack(wire: unknown): unknown {
    return replaceDeep(wire, (value) => {
      switch (wireKind(value)) {
        case "object":
          return this.#mirror(value as Wire & { [WIRE]: "object" });
        case "error":
          return unpackError((value as Wire & { [WIRE]: "error" }).error);
        case "local":
          return makeLocal((value as Wire & { [WIRE]: "local" }).name);
        default:
          return undefined;
      }
    });
  }

  async #send(where: string, values: unknown[], send: Send): Promise<unknown> {
    const call = this.#pack(where, values);
    try {
      const value = this.#accept(await this.#post(call, send));
      await call.written();
      return value;
    } catch (error) {
      // What it did not write to may be given to the next call.
      await this.#guarded(() => call.left()).catch(() => undefined);
      throw error;
    } finally {
      call.ended();
    }
  }

  #pack(where: string, values: unknown[]): PackedCall {
    const abort = (id: number, reason: unknown) => {
      if (!this.#ended) void this.#host.abort(id, reason);
    };
    return new PackedCall(this, where, values, abort);
  }

  /** Sends at once where there is nothing to wait for, so that calls arrive in the order in which they are made. */
  #post(call: PackedCall, send: Send): Promise<Reply> {
    const post = () => this.#guarded(() => send(call.values));
    return call.ready ? call.ready.then(post) : post();
  }

  /** A message and its answer, which also ends with the connection. */
  #guarded<T>(send: () => Promise<T>): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      if (this.#ended) throw this.#ended;
      this.#running.add(reject);
      send()
        .finally(() => this.#running.delete(reject))
        .then(resolve, (error: unknown) => reject(worded(error)));
    });
  }

  #accept(reply: Reply): unknown {
    const value = this.unpack(reply.value);
    for (const [id, properties] of reply.updates ?? []) {
      const mirror = this.#mirrors.get(id)?.mirror.deref();
      if (mirror) setProperties(mirror, properties);
    }
    if (reply.error) throw unpackError(reply.error);
    return value;
  }

  #mirror({ id, shapeId, shape, properties }: Wire & { [WIRE]: "object" }): Mirror {
    const known = this.#mirrors.get(id);
    const alive = known?.mirror.deref();
    if (known && alive) {
      known.count.times += 1;
      if (properties) setProperties(alive, properties);
      return alive;
    }
    const mirror = makeMirror(this, this.#class(shapeId, shape), id);
    const count = { id, times: 1 };
    this.#mirrors.set(id, { mirror: new WeakRef(mirror), count });
    this.#dropped.register(mirror, count);
    if (properties) setProperties(mirror, properties);
    return mirror;
  }

  #class(shapeId: number, shape: Shape | undefined): MirrorClass {
    let type = this.#classes.get(shapeId);
    if (!type) {
      type = mirrorClass(this, shape as Shape);
      this.#classes.set(shapeId, type);
    }
    return type;
  }

  #export(name: string, exported: Exported): unknown {
    if (exported.kind === "value") return exported.value;
    if (exported.kind !== "class") return caller(this, exported.kind, "", name);
    const type = this.#class(exported.shapeId, exported.shape);
    for (const [member, kind] of Object.entries(exported.statics)) {
      const value =
        kind === "property" ? exported.constants[member] : caller(this, kind, member, name);
      Object.defineProperty(type, member, { value, enumerable: false, configurable: true });
    }
    return type;
  }
}

/** A call as the user wrote it, for messages. */
function nameOf(target: Target, member: string): string {
  return typeof target === "string" ? [target, member].filter(Boolean).join(".") : member;
}

function worded(error: unknown): TinyloomError {
  if ((error as { name?: unknown } | null)?.name !== "DataCloneError") return toError(error);
  const { message } = error as DOMException;
  return invalid(`a value cannot go to the worker: ${message}`, "invalid-options", error);
}
