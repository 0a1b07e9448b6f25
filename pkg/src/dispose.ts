/** `using` and `await using`, where the host has them. */

/**
 * Gives a class the methods that end a `using` block. Older engines lack the two symbols: there the
 * class goes without.
 *
 * @param settled - resolves when what was running has ended.
 */
export function disposable<T extends object>(
  prototype: T,
  { end, settled }: { end: (one: T) => void; settled: (one: T) => Promise<void> },
): void {
  const define = (symbol: symbol | undefined, value: (this: T) => unknown) => {
    if (symbol)
      Object.defineProperty(prototype, symbol, { configurable: true, writable: true, value });
  };
  define(Symbol.dispose, function () {
    end(this);
  });
  define(Symbol.asyncDispose, async function () {
    end(this);
    await settled(this);
  });
}
