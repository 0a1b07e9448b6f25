/** Promises that a signal ends. */

import { throwIfAborted } from "./error.js";
import { inspect } from "./options.js";

/** A promise and what settles it. */
export interface Deferred {
  readonly promise: Promise<void>;
  resolve(): void;
  reject(error: unknown): void;
}

export function deferred(): Deferred {
  let resolve = () => {};
  let reject = (_: unknown) => {};
  const promise = new Promise<void>((done, failed) => {
    [resolve, reject] = [done, failed];
  });
  promise.catch(() => undefined); // whoever waits hears of it
  return { promise, resolve, reject };
}

/**
 * What the promise gives, or code "aborted" where the signal fires before that.
 *
 * @param now - whether a signal that fires is to end it at this moment.
 * @param what - what is aborted, for the message.
 */
export function either<T>(
  promise: Promise<T>,
  signal: AbortSignal | undefined,
  now = () => true,
  what = "the call",
): Promise<T> {
  if (!signal) return promise;
  return new Promise<T>((resolve, reject) => {
    const stop = () => {
      if (!now()) return;
      try {
        throwIfAborted(signal, what);
      } catch (error) {
        reject(error);
      }
    };
    stop();
    promise.catch(() => undefined); // the caller hears of the signal instead, where it cannot be listened to
    inspect(`${what}: signal`, () => signal.addEventListener("abort", stop));
    const ended = () => {
      try {
        signal.removeEventListener("abort", stop);
      } catch {} // of a signal of the caller's own; the call's result counts
    };
    promise.finally(ended).then(resolve, reject);
  });
}

export const sleep = (milliseconds: number) =>
  new Promise<void>((done) => setTimeout(done, milliseconds));
