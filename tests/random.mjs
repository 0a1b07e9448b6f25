// Random numbers that repeat with their seed, in Node and in pages.

/** Numbers in [0, 1): a linear congruential generator. */
export function numbers(seed) {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

/** Numbers in [0, 1) whose low bits are as good as the high ones, also after neighbouring seeds. */
export function mulberry32(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let x = Math.imul(state ^ (state >>> 15), state | 1);
    x ^= x + Math.imul(x ^ (x >>> 7), x | 61);
    return ((x ^ (x >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Whole numbers from 0 to one less than is asked for. */
export function below(next) {
  return (count) => Math.floor(next() * count);
}
