/** The API as a page has it whose objects live in a worker, derived from the API itself. */

import type * as direct from "../index.js";
import type * as storage from "../storage/index.js";
import type { InstanceOf } from "./surface.js";
import type { PAGE } from "./wire.js";

type Direct = typeof direct & typeof storage;

/** Every class whose objects live in the worker. */
type Mirrored = {
  [K in Exclude<keyof Direct, keyof typeof PAGE>]: InstanceOf<Direct[K]>;
}[Exclude<keyof Direct, keyof typeof PAGE>];

/** What stays in the worker. */
type Raw = GPUDevice | GPUBuffer;

type Callable = (...values: never[]) => unknown;

/**
 * An object that lives in a worker, as the page has it: what {@link connect} makes of a class.
 *
 * - A method gives a promise of what it gives in the class. One that gives an async iterable, such as `trainer.run` or
 *   `model.generate`, gives one here too.
 * - Properties are the same, and are read without waiting.
 * - Raw GPU objects, such as `runtime.device`, are left out: they cannot leave the worker.
 */
export type Remote<T> = {
  [K in keyof T as T[K] extends Raw ? never : K]: [K, T[K]] extends AsItIs
    ? T[K]
    : T[K] extends Callable
      ? RemoteMethod<T[K]>
      : Crossed<T[K]>;
};

/**
 * Methods and functions of plain data that give a promise anyway, with type parameters, which an inferred type would
 * lose.
 */
type AsItIs = ["capture", direct.Model["capture"]] | ["estimate", typeof direct.estimate];

/** A function that runs in the worker: of the last four of its overloads, if it has several. */
export type RemoteMethod<F> = F extends {
  (...values: infer A): infer R;
  (...values: infer B): infer S;
  (...values: infer C): infer T;
  (...values: infer D): infer U;
}
  ? // An overload that it has not gives unknown, which an intersection leaves out.
    (unknown extends R ? unknown : RemoteCall<A, R>) &
      (unknown extends S ? unknown : RemoteCall<B, S>) &
      (unknown extends T ? unknown : RemoteCall<C, T>) &
      RemoteCall<D, U>
  : F extends (...values: infer A) => infer R
    ? RemoteCall<A, R>
    : never;

type RemoteCall<A extends readonly unknown[], R> =
  R extends AsyncGenerator<infer Y, infer X, infer N>
    ? (
        ...values: CrossedAll<A>
      ) => AsyncGenerator<Crossed<Y>, X, N> & Omit<R, keyof AsyncGenerator<Y, X, N>>
    : (...values: CrossedAll<A>) => Promise<Crossed<Awaited<R>>>;

/** A class whose objects live in a worker. */
export type RemoteClass<C extends { readonly prototype: unknown }> = {
  readonly prototype: Remote<C["prototype"]>;
  [Symbol.hasInstance](value: unknown): boolean;
} & {
  readonly [K in Exclude<keyof C, "prototype">]: C[K] extends Callable ? RemoteMethod<C[K]> : C[K];
};

/** The exports of a worker as the page has them. */
export type RemoteExports<E> = {
  readonly [K in keyof E]: K extends keyof typeof PAGE
    ? E[K]
    : [K, E[K]] extends AsItIs
      ? E[K]
      : E[K] extends Callable
        ? RemoteMethod<E[K]>
        : E[K] extends { readonly prototype: unknown }
          ? RemoteClass<E[K]>
          : E[K];
};

/** What {@link connect} gives: the API, and the end of the connection. */
export type Connected = RemoteExports<Direct> & {
  /**
   * Ends the connection: calls fail with code "freed" from then on. The package's own worker ends with all
   * that lives in it; a worker that was given goes on.
   */
  close(): Promise<void>;
};

/** A value on the other side: objects of the worker as the page has them, at the top or one level below. */
type Crossed<T> = T extends Mirrored
  ? Remote<T>
  : T extends Callable
    ? T
    : HasMirrored<T> extends true
      ? { [K in keyof T]: Crossed<T[K]> }
      : T;

type HasMirrored<T> = T extends object
  ? true extends { [K in keyof T]-?: Extract<T[K], Mirrored> extends never ? false : true }[keyof T]
    ? true
    : false
  : false;

type CrossedAll<A extends readonly unknown[]> = { [I in keyof A]: Crossed<A[I]> };

/**
 * A {@link direct.Runtime | Runtime} that lives in the worker, used in the page as there: each method gives a promise, and
 * properties are read at once. {@link Remote} says what differs.
 */
export type Runtime = Remote<direct.Runtime>;
/**
 * A {@link direct.Model | Model} that lives in the worker, used in the page as there: each method gives a promise, and
 * properties are read at once. {@link Remote} says what differs.
 */
export type Model = Remote<direct.Model>;
/**
 * An {@link direct.Adapter | Adapter} that lives in the worker, used in the page as there: each method gives a promise, and
 * properties are read at once. {@link Remote} says what differs.
 */
export type Adapter = Remote<direct.Adapter>;
/**
 * A {@link direct.Trainer | Trainer} that lives in the worker, used in the page as there: each method gives a promise, and
 * properties are read at once. {@link Remote} says what differs.
 */
export type Trainer = Remote<direct.Trainer>;
/**
 * A {@link direct.Dataset | Dataset} that lives in the worker, used in the page as there: each method gives a promise, and
 * properties are read at once. {@link Remote} says what differs.
 */
export type Dataset = Remote<direct.Dataset>;
/**
 * A {@link storage.Runs | Runs} that lives in the worker, used in the page as there: each method gives a promise, and
 * properties are read at once. {@link Remote} says what differs.
 */
export type Runs = Remote<storage.Runs>;
/**
 * A {@link storage.StoredRun | StoredRun} that lives in the worker, used in the page as there: each method gives a promise, and
 * properties are read at once. {@link Remote} says what differs.
 */
export type StoredRun = Remote<storage.StoredRun>;
/**
 * A {@link direct.Tensor | Tensor} that lives in the worker, used in the page as there: each method gives a promise, and
 * properties are read at once. {@link Remote} says what differs.
 */
export type Tensor = Remote<direct.Tensor>;
/**
 * A {@link direct.Tokenizer | Tokenizer} that lives in the worker, used in the page as there: each method gives a promise, and
 * properties are read at once. {@link Remote} says what differs.
 */
export type Tokenizer = Remote<direct.Tokenizer>;
/**
 * A {@link direct.BpeTokenizer | BpeTokenizer} that lives in the worker, used in the page as there: each method gives a promise, and
 * properties are read at once. {@link Remote} says what differs.
 */
export type BpeTokenizer = Remote<direct.BpeTokenizer>;
