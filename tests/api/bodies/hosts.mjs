// Where the cases of a body of the public API's tests run.
//
// The module is the same wasm in every host, and so is the TypeScript over it. What differs: Firefox has
// another engine, another WebGPU (wgpu, naga, lavapipe), other web APIs. Chromium and Node share engine,
// WebGPU (Dawn) and adapter (SwiftShader); a page adds the GPU process, whose errors and results come
// over a pipe, and web APIs. The kernels themselves are compiled and compared in both browsers by
// tests/lanes.

export const HOSTS = ["node", "chromium", "firefox"];

/** Of `smoke` cases the core has every so-manieth. Each of them is in the core of one host. */
const SMOKE_ONE_OF = 2;

/**
 * The names of a body's cases that a host runs.
 *
 * A body exports its `place`:
 * - `whole`: the hosts that run all of its cases, and `why`. Bodies that make many runtimes or many plans run whole in
 *   Firefox: SwiftShader takes five times as long to compile them;
 * - `smoke`: the cases that the other hosts run, which touch the host where they can;
 * - `core`: in a whole host the core has every so-manieth case; all where it is not given, none of 0;
 * - `always`: cases that the core of each host has;
 * - `early`: it runs before the others, which lose devices: errors tell of losses in the same page or process;
 * - `timed`: it holds times to account, in `npm run test:timed` alone;
 * - `limits`: of the runtime, by host.
 *
 * @param place - of the body.
 * @param all - the names of all its cases.
 * @param host - one of HOSTS; undefined: all cases.
 * @param core - whether the core is enough.
 * @throws Error if the place names a case that the body does not have.
 */
export function placed({ whole, smoke = [], always = [], core: every = 1 }, all, host, core) {
  const missing = [...smoke, ...always].filter((name) => !all.includes(name));
  if (missing.length > 0) throw new Error(`the body has no case ${missing.join(" or ")}`);
  const others = HOSTS.filter((one) => !whole.includes(one));
  if (others.length > 0 && smoke.length === 0) {
    throw new Error("the body has no case for the hosts that do not run all of it");
  }
  if (host === undefined) return all;
  const [cases, count, at] = whole.includes(host)
    ? [all, every, 0]
    : [smoke, others.length * SMOKE_ONE_OF, others.indexOf(host)];
  const inCore = (name, index) => always.includes(name) || (count > 0 && index % count === at);
  return core ? cases.filter(inCore) : cases;
}
