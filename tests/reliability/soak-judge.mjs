// What a soak has to hold to, of its cycles alone: the table of the documents judges kept results by it too.

/** The share by which the collected heap may be above the highest of the first tenth: caches of the engine. */
const HEAP_NOISE = 0.01;

/** What is wrong with the cycles, if anything. Some have no `objectBytes`. */
export function judge(cycles, before) {
  const tenth = Math.max(1, Math.floor(cycles.length / 10));
  const [first, rest] = [cycles.slice(0, tenth), cycles.slice(tenth)];
  const known = (list, key) => list.map((one) => one[key]).filter((bytes) => bytes !== undefined);
  const wrong = [];
  const left = cycles.find(({ gpuBytes }) => gpuBytes !== before);
  if (left) wrong.push(`${left.gpuBytes} bytes of the GPU are left, and ${before} before`);
  const other = cycles.find(({ bits }) => bits !== cycles[0].bits);
  if (other) wrong.push(`bits differ: ${other.bits}, and at first ${cycles[0].bits}`);
  for (const [key, noise] of [
    ["wasmBytes", 0],
    ["heapBytes", HEAP_NOISE],
    ["objectBytes", HEAP_NOISE],
    ["bufferBytes", HEAP_NOISE],
  ]) {
    const [early, late] = [known(first, key), known(rest, key)];
    if (early.length === 0 || late.length === 0) {
      wrong.push(`${cycles.length} cycles are too few to compare ${key}`);
      continue;
    }
    const [was, is] = [Math.max(...early), Math.max(...late)];
    if (is > was * (1 + noise))
      wrong.push(`${key} grew from ${was} to ${is} after the first tenth`);
  }
  return wrong;
}
