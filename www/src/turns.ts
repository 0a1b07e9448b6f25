/** Milliseconds of work after which the page gets its turn. */
const TURN = 8;

/** All that a long work yields. In between the page gets its turn, so that it never stands still. */
export async function inTurns<T>(work: Iterable<T>): Promise<T[]> {
  const made: T[] = [];
  let began = performance.now();
  for (const one of work) {
    made.push(one);
    if (performance.now() - began < TURN) continue;
    await new Promise((turn) => setTimeout(turn));
    began = performance.now();
  }
  return made;
}
